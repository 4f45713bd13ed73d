//! Resolves the names in a program: finds the definition to which a path leads, through `use` declarations and
//! re-exports.

use crate::source::{Crate, Module};
use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::collections::{BTreeMap, HashMap, HashSet};
use syn::visit::{self, Visit};
use syn::{Item, UseTree, Visibility};

/// Maximum number of re-exports on the way to a definition.
const MAX_HOPS: usize = 16;

/// One name that a `use` declaration imports, or a glob.
#[derive(Clone, Debug)]
pub(crate) struct Import {
    pub(crate) path: Vec<String>,
    /// The name under which the definition is imported; `None` for a glob.
    pub(crate) name: Option<String>,
    pub(crate) public: bool,
    pub(crate) line: usize,
}

/// A definition, as its module and its name. It can also be a module itself.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Target {
    /// The path of the module. The crate is its first element.
    pub(crate) module: Vec<String>,
    /// The name of the definition in the module; `None` for the module itself.
    pub(crate) item: Option<String>,
}

impl Target {
    /// Returns true if this is the item `item` in any module of the crate `krate`.
    pub(crate) fn is(&self, krate: &str, item: &str) -> bool {
        self.module.first().is_some_and(|first| first == krate) && self.item.as_deref() == Some(item)
    }
}

/// The names that each module of the crates can use.
pub(crate) struct Names {
    modules: HashMap<Vec<String>, Scope>,
}

#[derive(Default)]
struct Scope {
    imports: BTreeMap<String, Vec<String>>,
    globs: Vec<Vec<String>>,
    defined: HashSet<String>,
}

impl Names {
    pub(crate) fn of(crates: &[Crate]) -> Self {
        let mut modules = HashMap::new();
        for krate in crates {
            for module in &krate.modules {
                let mut scope = Scope::default();
                for import in imports(module) {
                    match import.name {
                        Some(name) => drop(scope.imports.insert(name, import.path)),
                        None => scope.globs.push(import.path),
                    }
                }
                scope.defined = module.items.iter().filter_map(defined).map(|(name, _)| name.to_string()).collect();
                modules.insert(absolute(krate, &module.path), scope);
            }
        }
        Self { modules }
    }

    /// Returns the definition to which the path `path` leads in the code of the module `module`. The first element of
    /// `module` is the name of the crate. Returns `None` for local and unknown names.
    pub(crate) fn resolve(&self, module: &[String], path: &[String]) -> Option<Target> {
        self.follow(module, path, MAX_HOPS)
    }

    fn follow(&self, module: &[String], path: &[String], hops: usize) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let scope = self.modules.get(module)?;
        let hops = hops.checked_sub(1)?;
        match first.as_str() {
            "crate" => self.descend(&module[..1], rest, hops),
            "self" => self.descend(module, rest, hops),
            "super" if module.len() > 1 => {
                let parent = &module[..module.len() - 1];
                match rest.first() {
                    Some(next) if next == "super" => self.follow(parent, rest, hops),
                    _ => self.descend(parent, rest, hops),
                }
            }
            // `use tegmen::tegmen` would lead to itself.
            name if scope.imports.get(name).is_some_and(|path| path.first().is_none_or(|first| first != name)) => {
                let whole = [scope.imports[name].as_slice(), rest].concat();
                self.follow(module, &whole, hops)
            }
            name if scope.defined.contains(name) => self.descend(module, path, hops),
            name if self.modules.contains_key(std::slice::from_ref(first)) && name != "Self" => {
                self.descend(&path[..1], rest, hops)
            }
            _ => scope.globs.iter().find_map(|glob| {
                let glob = self.follow(module, glob, hops)?;
                let known = glob.item.is_none() && self.modules.get(&glob.module)?.knows(first);
                known.then(|| self.descend(&glob.module, path, hops)).flatten()
            }),
        }
    }

    /// Returns the definition to which `path` leads from inside `module`, after at most `hops` re-exports.
    fn descend(&self, module: &[String], path: &[String], hops: usize) -> Option<Target> {
        let scope = self.modules.get(module)?;
        let Some((first, rest)) = path.split_first() else {
            return Some(Target { module: module.to_vec(), item: None });
        };
        let child = [module, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.descend(&child, rest, hops);
        }
        if !scope.defined.contains(first)
            && (scope.imports.contains_key(first) || !scope.globs.is_empty())
            && let Some(target) = self.follow(module, path, hops)
        {
            return Some(target);
        }
        Some(Target { module: module.to_vec(), item: Some(first.clone()) })
    }
}

impl Scope {
    fn knows(&self, name: &str) -> bool {
        self.defined.contains(name) || self.imports.contains_key(name)
    }
}

/// Returns the path of a module, with the crate as its first element.
pub(crate) fn absolute(krate: &Crate, path: &[String]) -> Vec<String> {
    [std::slice::from_ref(&krate.ident), path].concat()
}

/// Returns the name and the visibility of the definition in an item; `None` if the item defines no name.
pub(crate) fn defined(item: &Item) -> Option<(&syn::Ident, &Visibility)> {
    Some(match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Mod(item) => (&item.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        _ => return None,
    })
}

/// Returns every import of a module, including the imports in function bodies.
pub(crate) fn imports(module: &Module) -> Vec<Import> {
    struct Uses(Vec<Import>);
    impl<'ast> Visit<'ast> for Uses {
        fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
            let public = matches!(item.vis, Visibility::Public(_));
            flatten(&item.tree, &[], public, &mut self.0);
        }
    }
    let mut uses = Uses(Vec::new());
    module.items.iter().for_each(|item| uses.visit_item(item));
    uses.0
}

fn flatten(tree: &UseTree, before: &[String], public: bool, into: &mut Vec<Import>) {
    let mut add = |path: Vec<String>, name: Option<String>, line| into.push(Import { path, name, public, line });
    let with = |name: String| [before, &[name]].concat();
    match tree {
        UseTree::Path(path) => flatten(&path.tree, &with(path.ident.to_string()), public, into),
        UseTree::Group(group) => group.items.iter().for_each(|tree| flatten(tree, before, public, into)),
        UseTree::Glob(glob) => add(before.to_vec(), None, glob.star_token.span.start().line),
        UseTree::Name(name) => {
            let line = name.ident.span().start().line;
            match name.ident.to_string() {
                // `use a::{self}` imports `a`.
                this if this == "self" => add(before.to_vec(), before.last().cloned(), line),
                this => add(with(this.clone()), Some(this), line),
            }
        }
        UseTree::Rename(rename) => {
            let line = rename.ident.span().start().line;
            let path = if rename.ident == "self" { before.to_vec() } else { with(rename.ident.to_string()) };
            add(path, Some(rename.rename.to_string()), line);
        }
    }
}

/// A path in the code that is not in a `use` declaration.
pub(crate) struct PathUse {
    pub(crate) segments: Vec<String>,
    pub(crate) line: usize,
    /// True if braces follow the path, as in an expression that builds a struct or a pattern that matches a struct. It
    /// is set only for paths in macros.
    pub(crate) braces: bool,
}

/// Returns every path in an item. In the arguments of macros, each sequence of names counts as a path.
pub(crate) fn paths(item: &Item) -> Vec<PathUse> {
    struct Paths(Vec<PathUse>);
    impl<'ast> Visit<'ast> for Paths {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            self.0.push(PathUse { segments: segments(path), line: line_of(path), braces: false });
            visit::visit_path(self, path);
        }
        fn visit_macro(&mut self, call: &'ast syn::Macro) {
            self.visit_path(&call.path);
            in_tokens(call.tokens.clone(), &mut self.0);
        }
    }
    let mut paths = Paths(Vec::new());
    paths.visit_item(item);
    paths.0
}

pub(crate) fn segments(path: &syn::Path) -> Vec<String> {
    path.segments.iter().map(|segment| segment.ident.to_string()).collect()
}

pub(crate) fn line_of(path: &syn::Path) -> usize {
    path.segments.first().map_or(0, |segment| segment.ident.span().start().line)
}

/// Finds all sequences of names such as `a::b::c` in tokens, and adds them to `into`.
pub(crate) fn in_tokens(tokens: TokenStream, into: &mut Vec<PathUse>) {
    let mut run: Option<PathUse> = None;
    let mut colons = 0;
    for token in tokens {
        match &token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Ident(ident) => match &mut run {
                Some(path) if colons == 2 => path.segments.push(ident.to_string()),
                _ => {
                    let line = ident.span().start().line;
                    let next = PathUse { segments: vec![ident.to_string()], line, braces: false };
                    into.extend(run.replace(next));
                }
            },
            TokenTree::Group(group) => {
                if let Some(mut path) = run.take() {
                    path.braces = group.delimiter() == Delimiter::Brace && colons == 0;
                    into.push(path);
                }
                in_tokens(group.stream(), into);
            }
            _ => into.extend(run.take()),
        }
        colons = 0;
    }
    into.extend(run);
}
