//! A filter that is being typed: it takes effect with each key.

use crossterm::event::KeyCode;

use crate::queries::{NamespaceFilter, Selection};

/// How much may be typed.
const MAX_INPUT: usize = 200;

/// What is filtered by.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub(super) enum RowFilter {
    Text,
    Namespace,
}

/// A line that is being typed.
#[derive(Clone, Debug)]
pub(super) struct FilterPrompt {
    pub(super) what: RowFilter,
    pub(super) input: String,
    /// The selection to go back to.
    pub(super) before: Selection,
}

impl FilterPrompt {
    /// Goes on with the filter that there is.
    pub(super) fn open(what: RowFilter, selection: &Selection) -> Self {
        let input = match what {
            RowFilter::Text => selection.text.clone(),
            RowFilter::Namespace => selection.namespace.text().to_owned(),
        };
        Self { what, input, before: selection.clone() }
    }

    /// Types a key; whether it is one.
    pub(super) fn types(&mut self, code: KeyCode) -> bool {
        match code {
            KeyCode::Backspace => drop(self.input.pop()),
            KeyCode::Char(letter) if self.input.len() < MAX_INPUT => self.input.push(letter),
            KeyCode::Char(_) => {}
            _ => return false,
        }
        true
    }

    /// Filters by what was typed.
    pub(super) fn apply(&self, selection: &mut Selection) {
        let input = self.input.clone();
        match self.what {
            RowFilter::Text => selection.text = input,
            RowFilter::Namespace if input.is_empty() => selection.namespace = NamespaceFilter::Any,
            RowFilter::Namespace => selection.namespace = NamespaceFilter::Prefix(input),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_typed_filters_at_once_and_is_bounded() {
        let mut selection = Selection::default();
        let mut prompt = FilterPrompt::open(RowFilter::Namespace, &selection);
        assert!("shop".chars().all(|letter| prompt.types(KeyCode::Char(letter))));
        assert!(!prompt.types(KeyCode::Up));
        prompt.apply(&mut selection);
        assert_eq!(selection.namespace, NamespaceFilter::Prefix("shop".to_owned()));
        assert_eq!(FilterPrompt::open(RowFilter::Namespace, &selection).input, "shop");
        assert!((0..4).all(|_| prompt.types(KeyCode::Backspace)));
        prompt.apply(&mut selection);
        assert_eq!(selection.namespace, NamespaceFilter::Any);
        prompt.what = RowFilter::Text;
        assert!((0..MAX_INPUT + 5).all(|_| prompt.types(KeyCode::Char('x'))));
        prompt.apply(&mut selection);
        assert_eq!((selection.text.len(), prompt.before.text.len()), (MAX_INPUT, 0));
    }
}
