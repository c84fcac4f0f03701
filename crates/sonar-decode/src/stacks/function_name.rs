//! Names of functions: demangled, and without what does not help to read a stack.

use std::fmt;
use std::sync::Arc;

use cpp_demangle::{DemangleOptions, Symbol};
use sonar_core::words::cut;

/// The longest name that is demangled, in bytes; a longer one is shown as it is.
const MAX_MANGLED: usize = 8_192;
/// The longest demangled name, in bytes, since a mangled name may double a type again and again. If it would be longer,
/// the symbol is shown as it is.
const MAX_DEMANGLED: usize = 16_384;
/// The longest name that is kept, in bytes.
const MAX_SHOWN: usize = 4_096;
/// Marks that compilers append to the name of a copy or a part of a function.
const COMPILER_MARKS: [&str; 8] =
    [".__uniq.", ".llvm.", ".cold", ".part.", ".isra.", ".constprop.", ".lto_priv.", ".localalias"];
/// The name of a function, in two forms.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// With arguments, templates and all.
    pub full: Arc<str>,
    /// Without return type, arguments, templates, anonymous namespaces and ABI tags; with its namespace.
    pub plain: Arc<str>,
}

impl FunctionName {
    /// The bytes of its texts, with their counts of references.
    pub fn heap_bytes(&self) -> usize {
        self.full.len() + self.plain.len() + 4 * size_of::<usize>()
    }

    /// Of a symbol's name, which may be mangled.
    pub fn new(symbol: &str) -> Self {
        let base = without_marks(symbol.split('@').next().unwrap_or(symbol));
        let parsed =
            (base.starts_with("_Z") && base.len() <= MAX_MANGLED).then(|| Symbol::new(base).ok()).flatten();
        let Some(parsed) = parsed else {
            let name: Arc<str> = cut(base, MAX_SHOWN).into();
            return Self { full: name.clone(), plain: name };
        };
        let full = demangled(&parsed, DemangleOptions::new()).unwrap_or_else(|| base.to_owned());
        let options = DemangleOptions::new().no_params().no_return_type();
        let plain = demangled(&parsed, options).unwrap_or_else(|| full.clone());
        Self { full: cut(&full, MAX_SHOWN).into(), plain: cut(&plain_name(&plain), MAX_SHOWN).into() }
    }
}

/// A text that refuses to grow beyond [`MAX_DEMANGLED`].
#[derive(Default)]
struct DemangledText(String);

impl fmt::Write for DemangledText {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MAX_DEMANGLED {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn demangled(symbol: &Symbol<&str>, options: DemangleOptions) -> Option<String> {
    let mut text = DemangledText::default();
    symbol.structured_demangle(&mut text, &options).ok()?;
    Some(text.0)
}

/// The name before the first mark of a compiler.
fn without_marks(symbol: &str) -> &str {
    let end = COMPILER_MARKS.iter().filter_map(|mark| symbol.find(mark)).min();
    // A name cannot be empty.
    end.filter(|end| *end > 0).map_or(symbol, |end| &symbol[..end])
}

/// A demangled name without templates, arguments, tags and anonymous namespaces.
fn plain_name(demangled: &str) -> String {
    let mut name = demangled;
    for prefix in ["non-virtual thunk to ", "virtual thunk to ", "covariant return thunk to "] {
        name = name.strip_prefix(prefix).unwrap_or(name);
    }
    let mut plain = String::with_capacity(name.len());
    // Brackets that are open. A `>` within round ones is a comparison.
    let mut open: Vec<char> = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_outside = open.is_empty();
        if let Some(operator) = operator(rest, &plain) {
            if is_outside {
                plain.push_str(operator);
            }
            rest = &rest[operator.len()..];
            continue;
        }
        // The tag of an ABI, an anonymous namespace, and what is inside of a lambda's name.
        if let Some(after) = rest.strip_prefix("[abi:").and_then(|rest| rest.split_once(']')) {
            rest = after.1;
            continue;
        }
        if let Some(after) = rest.strip_prefix("(anonymous namespace)::") {
            rest = after;
            continue;
        }
        if let Some(after) = rest.strip_prefix("{lambda(").and_then(end_of_lambda) {
            if is_outside {
                plain.push_str("{lambda}");
            }
            rest = after;
            continue;
        }
        match first {
            '<' | '(' => open.push(first),
            '>' => drop(open.pop_if(|last| *last == '<')),
            ')' => open.truncate(open.iter().rposition(|one| *one == '(').unwrap_or(open.len())),
            _ if is_outside => plain.push(first),
            _ => {}
        }
        rest = &rest[first.len_utf8()..];
    }
    let plain = plain.trim();
    let plain =
        ["const", "volatile", "&&", "&"].iter().fold(plain, |name, end| match name.strip_suffix(end) {
            Some(shorter) if *end == "&" || *end == "&&" || shorter.ends_with(' ') => shorter.trim_end(),
            _ => name,
        });
    if plain.is_empty() { demangled.to_owned() } else { plain.to_owned() }
}

/// An operator at the beginning of `rest`, with its signs: they are no brackets.
fn operator<'a>(rest: &'a str, before: &str) -> Option<&'a str> {
    const SIGNS: [&str; 13] =
        ["<=>", "<<=", ">>=", "->*", "<<", ">>", "<=", ">=", "->", "()", "<", ">", "[]"];
    let after = rest.strip_prefix("operator")?;
    if before.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
        return None;
    }
    let sign = SIGNS.iter().find(|sign| after.starts_with(**sign))?;
    Some(&rest[.."operator".len() + sign.len()])
}

/// What follows a lambda's name, `...)#1}`, after `{lambda(`.
fn end_of_lambda(rest: &str) -> Option<&str> {
    let mut depth = 1_u32;
    for (at, c) in rest.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return rest[at..].split_once('}').map(|(_, after)| after);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plain(symbol: &str) -> String {
        FunctionName::new(symbol).plain.to_string()
    }

    #[test]
    fn names_lose_arguments_templates_and_tags() {
        for (demangled, expected) in [
            (
                "mongo::LockerImpl<false>::lockComplete(mongo::ResourceId, mongo::LockMode)",
                "mongo::LockerImpl::lockComplete",
            ),
            ("mongo::(anonymous namespace)::runQuery(std::vector<std::pair<int, long>>)", "mongo::runQuery"),
            ("mongo::Status::toString[abi:cxx11]() const", "mongo::Status::toString"),
            ("std::ostream& operator<< <int>(std::ostream&, int)", "std::ostream& operator<<"),
            ("mongo::operator<(mongo::A const&, mongo::B const&)", "mongo::operator<"),
            ("mongo::A::operator()(int) const", "mongo::A::operator()"),
            (
                "mongo::f()::{lambda(int, void (*)())#1}::operator()(int) const",
                "mongo::f::{lambda}::operator()",
            ),
            ("mongo::A::operator->() const", "mongo::A::operator->"),
            ("mongo::A<mongo::B<(1>2)> >::g() &&", "mongo::A::g"),
            ("non-virtual thunk to mongo::A::h()", "mongo::A::h"),
            ("__wt_cond_wait_signal", "__wt_cond_wait_signal"),
        ] {
            assert_eq!(plain_name(demangled), expected, "{demangled}");
        }
    }

    #[test]
    fn symbols_are_demangled_without_marks_of_compilers_and_versions() {
        // Made with g++: mongo::LockerImpl<false>::lockComplete(int, char const*), and std::vector<int>::push_back.
        assert_eq!(
            plain("_ZN5mongo10LockerImplILb0EE12lockCompleteEiPKc"),
            "mongo::LockerImpl::lockComplete"
        );
        let name = FunctionName::new("_ZN5mongo10LockerImplILb0EE12lockCompleteEiPKc");
        assert_eq!(&*name.full, "mongo::LockerImpl<false>::lockComplete(int, char const*)");
        assert_eq!(plain("_ZNSt6vectorIiSaIiEE9push_backEOi"), "std::vector::push_back");
        assert_eq!(plain("_ZN5mongo3runEv.__uniq.123.llvm.456"), "mongo::run");
        assert_eq!(plain("__evict_page.part.0.cold"), "__evict_page");
        assert_eq!(plain("pthread_cond_timedwait@@GLIBC_2.3.2"), "pthread_cond_timedwait");
        assert_eq!(plain("_ZN5mongo"), "_ZN5mongo");
        assert_eq!(plain("_Zgarbage"), "_Zgarbage");
    }

    #[test]
    fn a_type_that_doubles_again_and_again_is_not_written_out() {
        // f(pair<int, int>, pair<that, that>, pair<that, that>, ...): the last argument has 2^16 numbers.
        let mut bomb = "_Z1fSt4pairIiiE".to_owned();
        for level in 0..15 {
            let digit = char::from_digit(level, 36).unwrap().to_ascii_uppercase();
            bomb.push_str(&format!("S_IS{digit}_S{digit}_E"));
        }
        let name = FunctionName::new(&bomb);
        assert_eq!((&*name.plain, &*name.full), ("f", bomb.as_str()));
        let small = FunctionName::new(&bomb[..25]);
        assert_eq!(
            &*small.full,
            "f(std::pair<int, int>, std::pair<std::pair<int, int>, std::pair<int, int> >)"
        );
    }

    proptest! {
        #[test]
        fn any_symbol_has_a_name(symbol in "(_Z)?[ -~é]{0,60}", mangled in "_ZN[A-Za-z0-9_.]{0,80}") {
            for symbol in [symbol, mangled] {
                let name = FunctionName::new(&symbol);
                prop_assert!(name.plain.len() <= MAX_SHOWN && name.full.len() <= MAX_SHOWN);
                let _ = plain_name(&symbol);
            }
        }
    }
}
