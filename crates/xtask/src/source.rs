//! What one Rust file says: its modules, imports, functions and `unsafe` blocks. Code that only
//! tests build is skipped.

use proc_macro2::Span;
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ImplItem, Item, Lit, Meta, Stmt, UseTree};

/// Path segments, absolute or not; `crate`, `self` and `super` may lead.
pub type Segments = Vec<String>;

/// The production code of one file.
#[derive(Debug, Default)]
pub struct Source {
    /// The file's own module first, then its inline modules.
    pub modules: Vec<Module>,
    /// Functions with a body, methods among them.
    pub functions: Vec<Function>,
    /// How many `unsafe` blocks it has.
    pub unsafe_blocks: usize,
    /// Whether its inner attributes make the crate `no_std`, at least outside tests.
    pub no_std: bool,
}

/// One module of a file.
#[derive(Debug, Default)]
pub struct Module {
    /// Its path below the file's own module; empty for that one.
    pub below: Segments,
    /// Modules that it declares and that stand in other files: name and `#[path]`.
    pub files: Vec<(String, Option<String>)>,
    /// Names that it defines.
    pub items: BTreeSet<String>,
    /// Names that it imports, and from where.
    pub imports: BTreeMap<String, Segments>,
    /// Modules that it imports all of.
    pub globs: Vec<Segments>,
    /// Every path that it names, imports among them, and the line.
    pub paths: Vec<(Segments, usize)>,
}

/// One function.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of its signature.
    pub line: usize,
    /// Lines from the signature to the closing brace.
    pub lines: usize,
}

/// Reads a file's text.
pub fn read(text: &str) -> syn::Result<Source> {
    let file = syn::parse_file(text)?;
    let mut reader = Reader { source: Source::default(), at: 0 };
    reader.source.no_std = file.attrs.iter().any(is_no_std);
    reader.source.modules.push(Module::default());
    if !file.attrs.iter().any(is_test_only) {
        reader.visit_file(&file);
    }
    Ok(reader.source)
}

/// Whether an attribute leaves the item to test builds.
fn is_test_only(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("cfg") => {
            let words = list.tokens.to_string();
            words == "test" || words.starts_with("all (test") || words.starts_with("all(test")
        }
        _ => false,
    }
}

fn is_no_std(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::Path(path) => path.is_ident("no_std"),
        Meta::List(list) if list.path.is_ident("cfg_attr") => {
            let words: String = list.tokens.to_string().split_whitespace().collect();
            words == "not(test),no_std"
        }
        _ => false,
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(i) => &i.attrs,
        Item::Enum(i) => &i.attrs,
        Item::ExternCrate(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Macro(i) => &i.attrs,
        Item::Mod(i) => &i.attrs,
        Item::Static(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        Item::Trait(i) => &i.attrs,
        Item::Type(i) => &i.attrs,
        Item::Union(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        _ => &[],
    }
}

fn name_of(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(i) => &i.ident,
        Item::Enum(i) => &i.ident,
        Item::Fn(i) => &i.sig.ident,
        Item::Macro(i) => i.ident.as_ref()?,
        Item::Static(i) => &i.ident,
        Item::Struct(i) => &i.ident,
        Item::Trait(i) => &i.ident,
        Item::Type(i) => &i.ident,
        Item::Union(i) => &i.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|a| match &a.meta {
        Meta::NameValue(pair) if pair.path.is_ident("path") => match &pair.value {
            Expr::Lit(lit) => match &lit.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    })
}

struct Reader {
    source: Source,
    /// The module that is being read.
    at: usize,
}

impl Reader {
    fn module(&mut self) -> &mut Module {
        &mut self.source.modules[self.at]
    }

    fn function(&mut self, name: &syn::Ident, from: Span, to: Span) {
        let line = from.start().line;
        let lines = to.end().line - line + 1;
        self.source.functions.push(Function { name: name.to_string(), line, lines });
    }

    fn import(&mut self, tree: &UseTree, prefix: &mut Segments) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.import(&path.tree, prefix);
                prefix.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, prefix));
            }
            UseTree::Glob(glob) => {
                let line = glob.star_token.span.start().line;
                let prefix = prefix.clone();
                self.module().globs.push(prefix.clone());
                self.module().paths.push((prefix, line));
            }
            UseTree::Name(name) => self.import_name(&name.ident, &name.ident, prefix),
            UseTree::Rename(rename) => self.import_name(&rename.ident, &rename.rename, prefix),
        }
    }

    fn import_name(&mut self, name: &syn::Ident, alias: &syn::Ident, prefix: &Segments) {
        let mut path = prefix.clone();
        // `use a::{self}` imports `a`.
        if name != "self" || path.is_empty() {
            path.push(name.to_string());
        }
        let alias = match alias.to_string().as_str() {
            "self" => path.last().cloned().unwrap_or_default(),
            other => other.to_owned(),
        };
        self.module().imports.insert(alias, path.clone());
        self.module().paths.push((path, name.span().start().line));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        if attributes(item).iter().any(is_test_only) {
            return;
        }
        self.module().items.extend(name_of(item));
        visit::visit_item(self, item);
    }

    fn visit_impl_item(&mut self, item: &'ast ImplItem) {
        if let ImplItem::Fn(method) = item
            && method.attrs.iter().any(is_test_only)
        {
            return;
        }
        visit::visit_impl_item(self, item);
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Stmt::Local(local) = statement
            && local.attrs.iter().any(is_test_only)
        {
            return;
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let name = module.ident.to_string();
        let Some((_, items)) = &module.content else {
            let path = path_attribute(&module.attrs);
            self.module().files.push((name, path));
            return;
        };
        let outer = self.at;
        let mut below = self.module().below.clone();
        below.push(name);
        self.at = self.source.modules.len();
        self.source.modules.push(Module { below, ..Module::default() });
        items.iter().for_each(|item| self.visit_item(item));
        self.at = outer;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.import(&item.tree, &mut Vec::new());
    }

    fn visit_item_fn(&mut self, f: &'ast syn::ItemFn) {
        self.function(&f.sig.ident, f.sig.fn_token.span, f.block.brace_token.span.close());
        visit::visit_item_fn(self, f);
    }

    fn visit_impl_item_fn(&mut self, f: &'ast syn::ImplItemFn) {
        self.function(&f.sig.ident, f.sig.fn_token.span, f.block.brace_token.span.close());
        visit::visit_impl_item_fn(self, f);
    }

    fn visit_trait_item_fn(&mut self, f: &'ast syn::TraitItemFn) {
        if let Some(body) = &f.default {
            self.function(&f.sig.ident, f.sig.fn_token.span, body.brace_token.span.close());
        }
        visit::visit_trait_item_fn(self, f);
    }

    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.source.unsafe_blocks += 1;
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments = path.segments.iter().map(|s| s.ident.to_string()).collect();
        let line = path.segments.first().map_or(0, |s| s.ident.span().start().line);
        self.module().paths.push((segments, line));
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        // Most macros of the standard library take expressions.
        type Arguments = syn::punctuated::Punctuated<Expr, syn::Token![,]>;
        if let Ok(arguments) = call.parse_body_with(Arguments::parse_terminated) {
            arguments.iter().for_each(|e| self.keep_and_visit(e));
        }
        visit::visit_macro(self, call);
    }
}

impl Reader {
    /// Visits an expression that does not live as long as the file.
    fn keep_and_visit(&mut self, expression: &Expr) {
        let mut inner = Reader { source: Source::default(), at: 0 };
        inner.source.modules.push(Module::default());
        inner.visit_expr(expression);
        let Source { modules, unsafe_blocks, .. } = inner.source;
        self.source.unsafe_blocks += unsafe_blocks;
        self.module().paths.extend(modules.into_iter().flat_map(|m| m.paths));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_spans_its_signature_and_body() {
        let source = read("/// Doc.\n#[inline]\nfn f(\n    a: u8,\n) -> u8 {\n    a\n}\n").unwrap();
        assert_eq!(source.functions, [Function { name: "f".into(), line: 3, lines: 5 }]);
    }

    #[test]
    fn tests_are_skipped() {
        let text = "#[cfg(test)] mod tests { fn f() { unsafe {} } }\n\
                    #[cfg(all(test, unix))] fn g() {}\n\
                    struct S; impl S { #[cfg(test)] fn h() {} }\n\
                    #[cfg(not(test))] fn kept() {}";
        let source = read(text).unwrap();
        let names: Vec<_> = source.functions.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["kept"]);
        assert_eq!(source.unsafe_blocks, 0);
    }

    #[test]
    fn unsafe_blocks_are_counted_in_macros_too() {
        let text = "fn f() { unsafe { g() }; assert!(unsafe { g() }); }";
        assert_eq!(read(text).unwrap().unsafe_blocks, 2);
    }

    #[test]
    fn imports_are_flattened() {
        let source = read("use crate::a::{self, B as C, d::{E, *}};").unwrap();
        let module = &source.modules[0];
        let path = |s: &str| s.split("::").map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(module.imports["a"], path("crate::a"));
        assert_eq!(module.imports["C"], path("crate::a::B"));
        assert_eq!(module.imports["E"], path("crate::a::d::E"));
        assert_eq!(module.globs, [path("crate::a::d")]);
    }

    #[test]
    fn no_std_is_seen_with_and_without_its_condition() {
        assert!(read("#![no_std]").unwrap().no_std);
        assert!(read("#![cfg_attr(not(test), no_std)]").unwrap().no_std);
        assert!(!read("#![cfg_attr(test, no_std)]").unwrap().no_std);
    }

    #[test]
    fn inline_modules_have_their_own_names() {
        let source = read("mod a { use std::fs; mod b; } fn f() {}").unwrap();
        assert_eq!(source.modules[1].below, ["a"]);
        assert_eq!(source.modules[1].files, [("b".to_owned(), None)]);
        assert!(source.modules[0].imports.is_empty());
    }
}
