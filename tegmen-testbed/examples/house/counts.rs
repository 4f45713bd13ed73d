//! The counts of `./ci.sh house`. They show how far the structure still is from its aims: one node, one endpoint, and
//! short functions.

use crate::names::{Names, Target, absolute, defined, imports, in_tokens, line_of, paths, segments};
use crate::source::{Crate, Module, Place};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use syn::visit::{self, Visit};
use syn::{Arm, Block, Expr, ImplItem, Item, Pat, Signature, Visibility};

/// The name of the crate whose types are counted.
const CORE: &str = "tegmen";
/// The name of the crate with the message layer of CoAP.
const COAP: &str = "tegmen_coap";
/// Maximum length of a function, in lines from its signature to its closing brace.
pub(crate) const LONGEST: usize = 80;

/// The places that one count has found, each with a remark.
pub(crate) type Places = BTreeMap<Place, String>;

/// Returns the places of every count. The key is the key of the count in the data file.
pub(crate) fn count(crates: &[Crate], names: &Names) -> BTreeMap<&'static str, Places> {
    let mut places = BTreeMap::from([("public_items", public_items(crates, names))]);
    let events = variants_of_events(crates);
    for krate in crates.iter().filter(|krate| !krate.example) {
        for module in &krate.modules {
            let path = absolute(krate, &module.path);
            let inside = |modules: &[&str]| {
                krate.ident == CORE && path.get(1).is_some_and(|module| modules.contains(&module.as_str()))
            };
            let mut add = |key, lines: Vec<(usize, String)>| {
                let places = places.entry(key).or_insert_with(Places::new);
                for (line, remark) in lines {
                    places.insert(Place { file: module.file.clone(), line }, remark);
                }
            };
            let retransmits_by_right = krate.ident == COAP || inside(&["coap", "node"]);
            add("retransmit", if retransmits_by_right { Vec::new() } else { retransmits(module) });
            add("event_copies", event_copies(module, &path, names, &events));
            add("cx", if inside(&["node", "endpoint"]) { Vec::new() } else { contexts(module) });
            add("long_functions", long_functions(module));
        }
    }
    places
}

/// Returns the lines that use `Due::Retransmit` in patterns, expressions and imports.
fn retransmits(module: &Module) -> Vec<(usize, String)> {
    let named = |path: &[String]| path.ends_with(&["Due".to_owned(), "Retransmit".to_owned()]);
    let mut lines = Vec::new();
    for path in module.items.iter().flat_map(paths).filter(|path| named(&path.segments)) {
        lines.push((path.line, String::new()));
    }
    for import in imports(module).iter().filter(|import| named(&import.path)) {
        lines.push((import.line, String::new()));
    }
    lines
}

/// Returns the lines that build a value of `Cx`, either with a literal or with a function of `Cx`, and the lines that
/// match its fields in a pattern.
fn contexts(module: &Module) -> Vec<(usize, String)> {
    struct Contexts(Vec<(usize, String)>);
    impl Contexts {
        fn add(&mut self, path: &syn::Path) {
            if path.segments.last().is_some_and(|last| last.ident == "Cx") {
                self.0.push((line_of(path), String::new()));
            }
        }
    }
    impl<'ast> Visit<'ast> for Contexts {
        fn visit_expr_struct(&mut self, value: &'ast syn::ExprStruct) {
            self.add(&value.path);
            visit::visit_expr_struct(self, value);
        }
        fn visit_pat_struct(&mut self, pattern: &'ast syn::PatStruct) {
            self.add(&pattern.path);
            visit::visit_pat_struct(self, pattern);
        }
        fn visit_expr_path(&mut self, path: &'ast syn::ExprPath) {
            let segments = &path.path.segments;
            if segments.len() > 1 && segments[segments.len() - 2].ident == "Cx" {
                self.0.push((line_of(&path.path), String::new()));
            }
        }
        fn visit_macro(&mut self, call: &'ast syn::Macro) {
            let mut runs = Vec::new();
            in_tokens(call.tokens.clone(), &mut runs);
            let built = runs.iter().filter(|run| run.braces && run.segments.last().is_some_and(|last| last == "Cx"));
            self.0.extend(built.map(|run| (run.line, String::new())));
        }
    }
    let mut contexts = Contexts(Vec::new());
    module.items.iter().for_each(|item| contexts.visit_item(item));
    contexts.0
}

/// Returns the functions that are longer than [`LONGEST`].
fn long_functions(module: &Module) -> Vec<(usize, String)> {
    let mut functions = Functions::default();
    module.items.iter().for_each(|item| functions.visit_item(item));
    let lengths = functions.0.iter().map(|(signature, block)| {
        let first = signature.fn_token.span.start().line;
        (first, signature.ident.to_string(), block.brace_token.span.close().end().line - first + 1)
    });
    let long = lengths.filter(|(_, _, length)| *length > LONGEST);
    long.map(|(line, name, length)| (line, format!("{name}: {length} lines"))).collect()
}

/// All functions that have a body.
#[derive(Default)]
struct Functions<'ast>(Vec<(&'ast Signature, &'ast Block)>);

impl<'ast> Visit<'ast> for Functions<'ast> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.0.push((&function.sig, &function.block));
        visit::visit_item_fn(self, function);
    }
    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.0.push((&function.sig, &function.block));
        visit::visit_impl_item_fn(self, function);
    }
    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.0.extend(function.default.as_ref().map(|block| (&function.sig, block)));
        visit::visit_trait_item_fn(self, function);
    }
}

/// Returns the variants of each enum with the name `Event` in the core library.
fn variants_of_events(crates: &[Crate]) -> BTreeMap<Target, BTreeSet<String>> {
    let mut events = BTreeMap::new();
    for krate in crates.iter().filter(|krate| krate.ident == CORE) {
        for module in &krate.modules {
            for item in &module.items {
                if let Item::Enum(item) = item
                    && item.ident == "Event"
                {
                    let target = Target { module: absolute(krate, &module.path), item: Some("Event".to_owned()) };
                    events.insert(target, item.variants.iter().map(|variant| variant.ident.to_string()).collect());
                }
            }
        }
    }
    events
}

/// Returns the conversions of the endpoint's events into another enum. Such a conversion is an `impl From<Event>`, or a
/// function whose `match` names every variant and returns a variant of the same other type in each arm.
fn event_copies(
    module: &Module,
    path: &[String],
    names: &Names,
    events: &BTreeMap<Target, BTreeSet<String>>,
) -> Vec<(usize, String)> {
    let is_event = |segments: &[String]| names.resolve(path, segments).filter(|target| target.is(CORE, "Event"));
    let mut lines = Vec::new();
    for item in &module.items {
        if let Item::Impl(block) = item
            && let Some((_, of, _)) = &block.trait_
            && let Some(from) = of.segments.last().filter(|segment| segment.ident == "From")
            && let syn::PathArguments::AngleBracketed(arguments) = &from.arguments
            && arguments.args.iter().any(|argument| match argument {
                syn::GenericArgument::Type(syn::Type::Path(of)) => is_event(&segments(&of.path)).is_some(),
                _ => false,
            })
        {
            lines.push((block.impl_token.span.start().line, "impl From<Event>".to_owned()));
            continue;
        }
        let mut functions = Functions::default();
        functions.visit_item(item);
        for (signature, block) in functions.0 {
            let mut matches = Matches(Vec::new());
            matches.visit_block(block);
            let copies = matches.0.iter().any(|arms| {
                let named: Vec<Vec<String>> = arms.iter().flat_map(|arm| variants(&arm.pat)).collect();
                let Some(event) = named.iter().find_map(|named| is_event(named.split_last()?.1)) else { return false };
                let named: BTreeSet<String> = named.iter().filter_map(|path| path.last().cloned()).collect();
                let built: HashSet<Option<String>> = arms.iter().map(|arm| type_built(&arm.body)).collect();
                events.get(&event).is_some_and(|all| all.is_subset(&named))
                    && built.len() == 1
                    && !built.contains(&None)
            });
            if copies {
                lines.push((signature.fn_token.span.start().line, format!("fn {}", signature.ident)));
            }
        }
    }
    lines
}

struct Matches<'ast>(Vec<&'ast [Arm]>);

impl<'ast> Visit<'ast> for Matches<'ast> {
    fn visit_expr_match(&mut self, expression: &'ast syn::ExprMatch) {
        self.0.push(&expression.arms);
        visit::visit_expr_match(self, expression);
    }
}

/// Returns the paths that occur in a pattern.
fn variants(pattern: &Pat) -> Vec<Vec<String>> {
    match pattern {
        Pat::Or(or) => or.cases.iter().flat_map(variants).collect(),
        Pat::Struct(pattern) => vec![segments(&pattern.path)],
        Pat::TupleStruct(pattern) => vec![segments(&pattern.path)],
        Pat::Path(pattern) => vec![segments(&pattern.path)],
        _ => Vec::new(),
    }
}

/// Returns the type `T` of an expression `T::Variant`, `T::Variant(...)` or `T::Variant { ... }`.
fn type_built(expression: &Expr) -> Option<String> {
    let path = match expression {
        Expr::Path(path) => &path.path,
        Expr::Struct(value) => &value.path,
        Expr::Call(call) => return type_built(&call.func),
        Expr::Block(block) => match block.block.stmts.last()? {
            syn::Stmt::Expr(last, None) => return type_built(last),
            _ => return None,
        },
        _ => return None,
    };
    let (_, of) = segments(path).split_last().map(|(last, of)| (last.clone(), of.join("::")))?;
    (!of.is_empty()).then_some(of)
}

/// Returns the items and inherent methods of the core library that its users can name. Items that it re-exports from
/// other crates are included.
fn public_items(crates: &[Crate], names: &Names) -> Places {
    let mut places = Places::new();
    let Some(core) = crates.iter().find(|krate| krate.ident == CORE) else { return places };
    let modules: BTreeMap<Vec<String>, &Module> =
        core.modules.iter().map(|module| (absolute(core, &module.path), module)).collect();
    let mut public: BTreeSet<Target> = BTreeSet::new();
    let mut waiting = vec![vec![core.ident.clone()]];
    let mut seen = HashSet::new();
    while let Some(path) = waiting.pop() {
        let Some(module) = modules.get(&path).filter(|_| seen.insert(path.clone())) else { continue };
        for (name, _) in module.items.iter().filter_map(defined).filter(|(_, of)| is_public(of)) {
            public.extend(names.resolve(&path, &["self".to_owned(), name.to_string()]));
        }
        for import in imports(module).iter().filter(|import| import.public) {
            match names.resolve(&path, &import.path) {
                Some(target) if import.name.is_none() => waiting.push(target.module),
                Some(target) => drop(public.insert(target)),
                None => {
                    let place = Place { file: module.file.clone(), line: import.line };
                    places.insert(place, import.path.join("::"));
                }
            }
        }
        waiting.extend(public.iter().filter(|target| target.item.is_none()).map(|target| target.module.clone()));
    }
    let is_known = |path: &[String], name: &[String]| names.resolve(path, name).is_some_and(|it| public.contains(&it));
    for (path, module) in &modules {
        let mut add = |name: &syn::Ident, of: &str| {
            let place = Place { file: module.file.clone(), line: name.span().start().line };
            places.insert(place, format!("{}::{of}{name}", path.join("::")));
        };
        for item in &module.items {
            if let Some((name, _)) = defined(item).filter(|(_, of)| is_public(of))
                && is_known(path, &["self".to_owned(), name.to_string()])
            {
                add(name, "");
            }
            if let Item::Impl(block) = item
                && block.trait_.is_none()
                && let syn::Type::Path(of) = &*block.self_ty
                && is_known(path, &segments(&of.path))
            {
                for item in &block.items {
                    if let ImplItem::Fn(function) = item
                        && is_public(&function.vis)
                    {
                        add(&function.sig.ident, &(segments(&of.path).join("::") + "::"));
                    }
                }
            }
        }
    }
    places
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}
