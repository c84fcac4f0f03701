//! The two readable forms of a shape, built beside the hash when a shape is new.
//!
//! The builder is generic over [`Text`]: with `()` it makes no text and the compiler removes all of it; with
//! [`Rendered`] it gives the same ids and both forms.

/// The longest text of any part of a shape, in bytes; longer ones are cut and marked.
pub const MAX_TEXT: usize = 4_096;
/// The most text, in bytes, that is made while reading one message.
pub const MESSAGE_BUDGET: usize = 512 * 1024;

/// How the children of a container are written.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Style {
    /// `{key: value, …}`, sorted by key; operators of one key are put together.
    Document,
    /// `{key: value, …}` in the order sent.
    Sequence,
    /// `[value, …]` in the order sent.
    List,
    /// `[value, …]`, sorted.
    Set,
}

/// A child of a container, with what either form needs.
#[derive(Debug)]
pub struct TextElement<T: Text> {
    /// Its hash without order.
    pub hash: u64,
    /// Its key and, for a condition, its operator.
    pub label: T::Label,
    /// Its value.
    pub text: T,
}

/// What a builder makes in addition to the hashes.
pub trait Text: Sized + Default {
    /// A key with an operator.
    type Label: Default;
    /// Whether text is made at all.
    const WANTED: bool;
    /// The label of a child.
    fn label(rank: u8, path: &[u8], operator: &[u8]) -> Self::Label;
    /// A leaf.
    fn leaf(typed: &str, plain: &str) -> Self;
    /// A kept literal or field path: itself in the typed form, masked in the plain one if `masked`.
    fn literal(text: &[u8], masked: bool) -> Self;
    /// A container. Takes the texts of the children.
    fn container(style: Style, children: &mut [TextElement<Self>]) -> Self;
    /// How many bytes it holds.
    fn bytes(&self) -> usize;
    /// The plain form of a find: its filter with sort, hint and so on as `$orderby`, `$hint` … inside.
    fn as_query(fields: &[TextElement<Self>]) -> Self;
    /// The same, with the plain form of `other`.
    fn with_plain(self, other: Self) -> Self;
    /// The same behind an action, as in the statements of bulkWrite.
    fn named(self, action: &str) -> Self;
    /// A mark that something was cut here.
    fn cut() -> Self;
}

impl Text for () {
    type Label = ();
    const WANTED: bool = false;
    fn label(_: u8, _: &[u8], _: &[u8]) -> Self::Label {}
    fn leaf(_: &str, _: &str) -> Self {}
    fn literal(_: &[u8], _: bool) -> Self {}
    fn container(_: Style, _: &mut [TextElement<Self>]) -> Self {}
    fn bytes(&self) -> usize {
        0
    }
    fn as_query(_: &[TextElement<Self>]) -> Self {}
    fn with_plain(self, _: Self) -> Self {}
    fn named(self, _: &str) -> Self {}
    fn cut() -> Self {}
}

/// Both forms.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// With typed placeholders.
    pub typed: String,
    /// With every value and direction as `?`.
    pub plain: String,
    /// Something was left out because it was too long.
    pub cut: bool,
}

/// The place of a child, and its name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChildLabel {
    /// Lower ranks come first, whatever the key.
    rank: u8,
    path: String,
    operator: String,
}

impl Text for Rendered {
    type Label = ChildLabel;
    const WANTED: bool = true;

    fn label(rank: u8, path: &[u8], operator: &[u8]) -> ChildLabel {
        ChildLabel { rank, path: name(path), operator: name(operator) }
    }

    fn leaf(typed: &str, plain: &str) -> Self {
        Self { typed: typed.into(), plain: plain.into(), cut: false }
    }

    fn literal(text: &[u8], masked: bool) -> Self {
        let typed = String::from_utf8_lossy(text).chars().flat_map(escaped).collect::<String>();
        let plain = if masked { "?".into() } else { typed.clone() };
        Self { typed, plain, cut: false }
    }

    fn container(style: Style, children: &mut [TextElement<Self>]) -> Self {
        match style {
            Style::Document => children.sort_by(|a, b| a.label.cmp(&b.label)),
            Style::Set => children.sort_by(|a, b| a.text.typed.cmp(&b.text.typed)),
            Style::Sequence | Style::List => {}
        }
        let cut = children.iter().any(|child| child.text.cut);
        let keyed = matches!(style, Style::Document | Style::Sequence);
        let (typed, cut_typed) = join(keyed, children, |child| &child.text.typed);
        let (plain, cut_plain) = join(keyed, children, |child| &child.text.plain);
        Self { typed, plain, cut: cut || cut_typed || cut_plain }
    }

    fn bytes(&self) -> usize {
        self.typed.len() + self.plain.len()
    }

    fn as_query(fields: &[TextElement<Self>]) -> Self {
        let mut entries: Vec<String> = fields
            .iter()
            .filter_map(|field| {
                let name = match field.label.path.as_str() {
                    "sort" => "$orderby",
                    "hint" => "$hint",
                    "min" => "$min",
                    "max" => "$max",
                    "projection" => "$projection",
                    _ => return None,
                };
                Some(format!("{name}: {}", field.text.plain))
            })
            .collect();
        entries.sort();
        let filter = fields.iter().find(|field| field.label.path == "filter");
        let inner = filter.and_then(|filter| filter.text.plain.strip_prefix('{')?.strip_suffix('}'));
        entries.extend(inner.filter(|inner| !inner.is_empty()).map(str::to_owned));
        Self { plain: format!("{{{}}}", entries.join(", ")), ..Self::default() }
    }

    fn with_plain(self, other: Self) -> Self {
        Self { typed: self.typed, plain: other.plain, cut: self.cut || other.cut }
    }

    fn named(self, action: &str) -> Self {
        let name = |text: &str| format!("{{{action}: {text}}}");
        Self { typed: name(&self.typed), plain: name(&self.plain), cut: self.cut }
    }

    fn cut() -> Self {
        Self { typed: "…".into(), plain: "…".into(), cut: true }
    }
}

impl Rendered {
    /// The text of a statement with its namespace, for commands on several.
    pub(crate) fn of_namespace(self, namespace: &str) -> Self {
        let with = |text: &str| format!("{namespace} {text}");
        Self { typed: with(&self.typed), plain: with(&self.plain), cut: self.cut }
    }
}

/// Writes the children between brackets, as many as fit. Returns whether some were cut.
fn join<'a>(
    keyed: bool,
    children: &'a [TextElement<Rendered>],
    form: impl Fn(&'a TextElement<Rendered>) -> &'a String,
) -> (String, bool) {
    let (open, close) = if keyed { ('{', '}') } else { ('[', ']') };
    let mut out = String::from(open);
    let mut cut = false;
    let mut at = 0;
    while at < children.len() {
        let child = &children[at];
        // Conditions on one path are written as one document of operators.
        let same = children[at..].iter().take_while(|other| other.label.path == child.label.path).count();
        let group = if keyed && !child.label.operator.is_empty() {
            &children[at..at + same]
        } else {
            &children[at..=at]
        };
        let begin = out.len();
        if begin > 1 {
            out.push_str(", ");
        }
        if keyed {
            out.push_str(&child.label.path);
            out.push_str(": ");
        }
        match group {
            [one] if one.label.operator.is_empty() || is_equality(&one.label.operator) => {
                out.push_str(form(one))
            }
            conditions => {
                for (i, condition) in conditions.iter().enumerate() {
                    let operator = match condition.label.operator.as_str() {
                        equality if is_equality(equality) => "$eq",
                        operator => operator,
                    };
                    out.push_str(if i == 0 { "{" } else { ", " });
                    out.push_str(operator);
                    out.push_str(": ");
                    out.push_str(form(condition));
                }
                out.push('}');
            }
        }
        at += group.len();
        if out.len() > MAX_TEXT {
            out.truncate(begin);
            out.push_str(if begin > 1 { ", …" } else { "…" });
            cut = true;
            break;
        }
    }
    out.push(close);
    (out, cut)
}

/// The operator that `{a: 5}` stands for.
pub const EQUALITY: &[u8] = b"=";

fn is_equality(operator: &str) -> bool {
    operator.as_bytes() == EQUALITY
}

/// A key: as it is if that is unambiguous, else quoted.
fn name(key: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_$.<>=-[]".contains(byte);
    if key.iter().all(plain) {
        String::from_utf8_lossy(key).into_owned()
    } else {
        let inner: String = String::from_utf8_lossy(key).chars().flat_map(escaped).collect();
        format!("\"{inner}\"")
    }
}

/// Escapes characters that could move the cursor or end the quotes.
fn escaped(c: char) -> impl Iterator<Item = char> {
    let escape = c.is_control()
        || c == '"'
        || c == '\\'
        || ('\u{200b}'..='\u{202f}').contains(&c)
        || ('\u{2060}'..='\u{206f}').contains(&c);
    let (kept, written) = if escape { (None, Some(c.escape_default())) } else { (Some(c), None) };
    kept.into_iter().chain(written.into_iter().flatten())
}
