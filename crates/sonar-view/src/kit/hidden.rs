//! Operations that a view leaves out, by reason, with the switch that shows them.

use sonar_core::words::plural;
use std::collections::BTreeMap;

use serde::Serialize;
use sonar_core::{Class, Role};
use ts_rs::TS;

use crate::kit::{Count, scaled};

/// Why an operation is left out of a view. Where several reasons apply the first one counts, except that role and
/// class together are one reason, because it takes both switches to show the operation.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Its class is not selected.
    Class,
    /// Its role is not selected.
    Role,
    /// Neither its role nor its class is selected.
    RoleAndClass,
    /// It does not match the text of `--filter`.
    Filter,
    /// Its namespace is not selected (in the live view).
    Namespace,
    /// Its row is beyond `--limit`.
    Limit,
}

impl Reason {
    /// The stable name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Role => "role",
            Self::RoleAndClass => "role and class",
            Self::Filter => "filter",
            Self::Namespace => "namespace",
            Self::Limit => "limit",
        }
    }

    /// What to write on the command line to see these operations.
    pub const fn switch(self) -> &'static str {
        match self {
            Self::Class => "--class all",
            Self::Role => "--role all",
            Self::RoleAndClass => "--role all --class all",
            Self::Filter => "without --filter",
            Self::Namespace => "without the namespace filter",
            Self::Limit => "a larger --limit",
        }
    }

    /// What to press in the live view to see them.
    const fn key(self) -> &'static str {
        match self {
            Self::Class => "key c",
            Self::Role => "key o",
            Self::RoleAndClass => "keys o, c",
            Self::Filter | Self::Namespace => "key Esc",
            Self::Limit => "a larger --limit",
        }
    }
}

/// Operations that are left out for one reason.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct HiddenPart {
    /// Why.
    pub reason: Reason,
    /// How many by class, in the order of [`Class::ALL`]: those that ended, and those in flight at the end
    /// of the span. Not scaled.
    pub by_class: [u64; Class::ALL.len()],
    /// Those of a row that holds operations of several classes. Not scaled.
    pub of_any_class: u64,
}

impl HiddenPart {
    /// How many, of all classes. Not scaled.
    pub fn operations(&self) -> u64 {
        self.by_class.iter().fold(self.of_any_class, |sum, count| sum.saturating_add(*count))
    }

    /// Its classes that are not empty.
    pub fn classes(&self) -> impl Iterator<Item = (Class, u64)> {
        Class::ALL.into_iter().zip(self.by_class).filter(|(_, count)| *count > 0)
    }
}

/// All that a view leaves out.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hidden {
    parts: Vec<HiddenPart>,
    /// The selected role; `None` for all.
    role: Option<Role>,
    /// Replies that were read only in part (`--snap-replies`): their operations are shown, but not the documents,
    /// cursors and errors after that part. Not scaled.
    pub snapped: u64,
}

/// Where the line is shown, and so whether it names a switch or a key.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum HiddenContext {
    /// In the output of a command.
    CommandLine,
    /// In the live view.
    LiveView,
}

impl Hidden {
    /// Hides nothing yet; `role` is the selected role.
    pub fn new(role: Option<Role>) -> Self {
        Self { role, ..Self::default() }
    }

    /// Counts operations of one class that are left out; `None` for a row with operations of several.
    pub fn add(&mut self, reason: Reason, class: impl Into<Option<Class>>, operations: u64) {
        if operations == 0 {
            return;
        }
        let at = self.parts.iter().position(|part| part.reason == reason).unwrap_or_else(|| {
            self.parts.push(HiddenPart { reason, by_class: [0; Class::ALL.len()], of_any_class: 0 });
            self.parts.len() - 1
        });
        let part = &mut self.parts[at];
        let count = match class.into() {
            Some(class) => &mut part.by_class[class as usize],
            None => &mut part.of_any_class,
        };
        *count = count.saturating_add(operations);
    }

    /// What is left out, by reason, the most first.
    pub fn parts(&self) -> Vec<HiddenPart> {
        let mut parts = self.parts.clone();
        parts.sort_by_key(|part| (std::cmp::Reverse(part.operations()), part.reason as u8));
        parts
    }

    /// How many operations are left out. Not scaled.
    pub fn operations(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(part.operations()))
    }

    /// One line: how many operations are left out, why, and how to show them; `None` where nothing is left out.
    /// Counts are scaled by `sample`.
    pub fn line(&self, sample: u32, reader: HiddenContext) -> Option<String> {
        let mark = if sample > 1 { "~" } else { "" };
        let number = |count: u64| {
            let count = scaled(count, sample);
            // Exact as long as it is short.
            if count < 1_000_000 {
                format!("{mark}{count}")
            } else {
                format!("{mark}{}", Count(count as f64))
            }
        };
        let (mut reasons, is_one) = (Vec::new(), self.parts.len() == 1);
        for part in self.parts() {
            let count = part.operations();
            // The noun stands once.
            let count = if is_one { plural(number(count), "operation") } else { number(count) };
            let what = self.what(&part, &count, &number);
            let how = match reader {
                HiddenContext::CommandLine => part.reason.switch(),
                HiddenContext::LiveView => part.reason.key(),
            };
            reasons.push(format!("{what} ({how})"));
        }
        let total = self.operations();
        let mut line = match (reasons.len(), total) {
            (0, _) => String::new(),
            (1, _) => format!("Not shown: {}", reasons[0]),
            _ => format!("Not shown: {}: {}", plural(number(total), "operation"), reasons.join(", ")),
        };
        if self.snapped > 0 {
            let between = if line.is_empty() { "Not shown: " } else { "; " };
            let replies = if self.snapped == 1 { "reply" } else { "replies" };
            line.push_str(&format!(
                "{between}documents, cursors and errors in {} cut {replies} (without --snap-replies)",
                number(self.snapped)
            ));
        }
        (!line.is_empty()).then_some(line)
    }

    fn what(&self, part: &HiddenPart, count: &str, number: &impl Fn(u64) -> String) -> String {
        let issued = match self.role {
            Some(Role::Issued) => "sent by clients",
            _ => "sent by other servers",
        };
        let of_class = || {
            let classes: Vec<_> = part.classes().collect();
            match classes.as_slice() {
                [(class, _)] => format!("of class {class}"),
                _ => {
                    let each: Vec<_> =
                        classes.iter().map(|(class, count)| format!("{class} {}", number(*count))).collect();
                    format!("of other classes: {}", each.join(", "))
                }
            }
        };
        match part.reason {
            Reason::Class => format!("{count} {}", of_class()),
            Reason::Role => format!("{count} {issued}"),
            Reason::RoleAndClass => format!("{count} {issued}, {}", of_class()),
            Reason::Filter => format!("{count} that the filter leaves out"),
            Reason::Namespace => format!("{count} of other namespaces"),
            Reason::Limit => format!("{count} in further rows"),
        }
    }
}

/// Operations that are left out for one reason.
#[derive(Serialize, Debug, TS)]
pub(crate) struct HiddenObject {
    reason: &'static str,
    operations: u64,
    classes: BTreeMap<&'static str, u64>,
    show_with: &'static str,
}

impl HiddenObject {
    /// All reasons, with counts scaled by `sample`.
    pub(crate) fn parts(hidden: &Hidden, sample: u32) -> Vec<Self> {
        let part = |part: HiddenPart| Self {
            reason: part.reason.name(),
            operations: scaled(part.operations(), sample),
            classes: part.classes().map(|(class, count)| (class.name(), scaled(count, sample))).collect(),
            show_with: part.reason.switch(),
        };
        hidden.parts().into_iter().map(part).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_number_and_its_switch() {
        let mut hidden = Hidden::new(Some(Role::Served));
        assert_eq!(hidden.line(1, HiddenContext::CommandLine), None);
        hidden.add(Reason::Class, Class::Monitoring, 12);
        assert_eq!(
            hidden.line(1, HiddenContext::CommandLine).unwrap(),
            "Not shown: 12 operations of class monitoring (--class all)"
        );
        hidden.add(Reason::Class, Class::Internal, 1);
        hidden.add(Reason::RoleAndClass, Class::Replication, 40);
        hidden.add(Reason::Limit, Class::User, 0);
        assert_eq!(
            hidden.line(1, HiddenContext::CommandLine).unwrap(),
            "Not shown: 53 operations: 40 sent by other servers, of class replication \
             (--role all --class all), 13 of other classes: internal 1, monitoring 12 (--class all)"
        );
        assert_eq!(hidden.operations(), 53);
        let live = hidden.line(10, HiddenContext::LiveView).unwrap();
        assert!(live.starts_with("Not shown: ~530 operations: ~400 sent"), "{live}");
        assert!(live.contains("(keys o, c)") && live.contains("(key c)"), "{live}");
    }

    #[test]
    fn what_a_cut_reply_hides_is_counted_too() {
        let mut hidden = Hidden { snapped: 3, ..Hidden::new(None) };
        assert_eq!(
            hidden.line(1, HiddenContext::CommandLine).unwrap(),
            "Not shown: documents, cursors and errors in 3 cut replies (without --snap-replies)"
        );
        hidden.add(Reason::Filter, Class::User, 1);
        assert_eq!(
            hidden.line(1, HiddenContext::CommandLine).unwrap(),
            "Not shown: 1 operation that the filter leaves out (without --filter); documents, cursors and errors \
             in 3 cut replies (without --snap-replies)"
        );
    }
}
