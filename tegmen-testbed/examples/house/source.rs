//! Reads and parses the product code of the workspace: its packages, the crates of each package, and the modules of
//! each crate.
//!
//! Modules are found by their `mod` declarations, as the compiler finds them. Items under `#[cfg(test)]` are left out.

use std::fs;
use std::path::{Path, PathBuf};
use syn::{Attribute, ImplItem, Item, Meta};

/// A line in a file, such as the line of an item.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
}

/// One crate: a library, a program or an example.
pub(crate) struct Crate {
    /// For a library, the first segment of the paths to its items. For another crate, the names of the package and the
    /// target.
    pub(crate) ident: String,
    pub(crate) example: bool,
    /// The modules of the crate. The root module is the first.
    pub(crate) modules: Vec<Module>,
}

/// One module, with its own items. The items of its child modules are not included.
pub(crate) struct Module {
    /// The names of the modules from the root of the crate to this module; empty for the root itself.
    pub(crate) path: Vec<String>,
    pub(crate) file: String,
    pub(crate) items: Vec<Item>,
}

/// Reads every crate below the folder `root`, whose path must be absolute and without symbolic links.
///
/// # Errors
/// If a file cannot be read or parsed.
pub(crate) fn load(root: &Path) -> Result<Vec<Crate>, String> {
    let mut crates = Vec::new();
    for manifest in files(root, "Cargo.toml")? {
        let text = fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
        let manifest_toml: toml::Table =
            toml::from_str(&text).map_err(|error| format!("{}: {error}", manifest.display()))?;
        let package = manifest_toml.get("package").and_then(|package| package.get("name"));
        let (Some(package), Some(folder)) = (package.and_then(toml::Value::as_str), manifest.parent()) else {
            continue;
        };
        for (target, file) in targets(folder)? {
            let ident = match target.as_str() {
                "lib" => package.replace('-', "_"),
                "main" => package.to_owned(),
                _ => format!("{package}/{target}"),
            };
            let example = file.strip_prefix(folder).is_ok_and(|file| file.starts_with("examples"));
            let mut krate = Crate { ident, example, modules: Vec::new() };
            add_file(root, &file, Vec::new(), &mut krate.modules)?;
            crates.push(krate);
        }
    }
    Ok(crates)
}

/// Returns every file below `folder` whose name ends with `suffix`, sorted by path. Folders with generated files
/// (`target`) and hidden folders are left out.
///
/// # Errors
/// If a folder cannot be read.
pub(crate) fn files(folder: &Path, suffix: &str) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let entries = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| format!("{}: {error}", folder.display()))?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if path.is_dir() && !path.is_symlink() && !name.starts_with('.') && name != "target" {
            found.extend(files(&path, suffix)?);
        } else if path.is_file() && name.ends_with(suffix) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the root file of each crate of a package, with the name of its target.
fn targets(folder: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    let mut found = Vec::new();
    for (target, file) in [("lib", "src/lib.rs"), ("main", "src/main.rs"), ("build", "build.rs")] {
        if folder.join(file).is_file() {
            found.push((target.to_owned(), folder.join(file)));
        }
    }
    for kind in ["src/bin", "examples", "fuzz_targets"] {
        let folder = folder.join(kind);
        if !folder.is_dir() {
            continue;
        }
        for file in files(&folder, ".rs")? {
            let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
            let target = match file.parent() {
                Some(parent) if parent == folder => stem(&file),
                Some(parent) if file.ends_with("main.rs") => stem(parent),
                _ => None,
            };
            found.extend(target.map(|target| (target, file)));
        }
    }
    Ok(found)
}

fn add_file(root: &Path, file: &Path, path: Vec<String>, modules: &mut Vec<Module>) -> Result<(), String> {
    let file = &file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?;
    let shown = file.strip_prefix(root).unwrap_or(file).display().to_string();
    let text = fs::read_to_string(file).map_err(|error| format!("{shown}: {error}"))?;
    let parsed = syn::parse_file(&text).map_err(|error| format!("{shown}:{}: {error}", error.span().start().line))?;
    let folder = file.parent().unwrap_or(root);
    // The children of `a.rs` are in `a/`, those of the root and of `mod.rs` beside it.
    let beside = path.is_empty() || file.ends_with("mod.rs");
    let children = if beside { folder.to_owned() } else { file.with_extension("") };
    add_module(root, parsed.items, &Here { file, shown, folder, children }, path, modules)
}

/// The position of a module's file in the file system.
struct Here<'f> {
    file: &'f Path,
    shown: String,
    /// The folder to which the paths in `#[path]` attributes are relative.
    folder: &'f Path,
    /// The folder that contains the files of child modules.
    children: PathBuf,
}

fn add_module(
    root: &Path,
    mut items: Vec<Item>,
    here: &Here<'_>,
    path: Vec<String>,
    modules: &mut Vec<Module>,
) -> Result<(), String> {
    items.retain_mut(|item| {
        if let Item::Impl(block) = item {
            block.items.retain(|item| !matches!(item, ImplItem::Fn(function) if is_test(&function.attrs)));
        }
        !is_test(attributes(item))
    });
    let at = modules.len();
    modules.push(Module { path: path.clone(), file: here.shown.clone(), items: Vec::new() });
    for item in &mut items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let child = [path.as_slice(), std::slice::from_ref(&name)].concat();
        if let Some((_, content)) = module.content.take() {
            let children = here.children.join(&name);
            add_module(root, content, &Here { shown: here.shown.clone(), children, ..*here }, child, modules)?;
            continue;
        }
        let candidates = match path_attribute(&module.attrs) {
            Some(given) => vec![here.folder.join(given)],
            None => vec![here.children.join(format!("{name}.rs")), here.children.join(&name).join("mod.rs")],
        };
        let file = candidates.iter().find(|file| file.is_file());
        let file = file.ok_or_else(|| format!("{}: no file for mod {name}", here.file.display()))?;
        add_file(root, file, child, modules)?;
    }
    modules[at].items = items;
    Ok(())
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

/// Returns true if the item is only for tests: it has `cfg(test)`, `cfg(all(test, ...))` or `cfg(doctest)`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            let condition = list.tokens.to_string();
            let words: Vec<&str> = condition.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
            (words.contains(&"test") || words.contains(&"doctest")) && !words.contains(&"not")
        }
        _ => false,
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}
