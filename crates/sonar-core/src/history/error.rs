//! Why a history cannot be read or written.

use std::error::Error;
use std::fmt;

/// Why a history cannot be read or written. It reads like the error of the store that it comes from, and has the same
/// causes.
#[derive(Debug)]
pub struct HistoryError(Box<dyn Error + Send + Sync>);

impl HistoryError {
    /// From the error of a store.
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self(Box::new(error))
    }

    /// The error of the store.
    pub fn of_store(&self) -> &(dyn Error + 'static) {
        &*self.0
    }
}

impl fmt::Display for HistoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for HistoryError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Outer(fmt::Error);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("cannot use the file")
        }
    }

    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn it_says_what_the_store_says_and_no_more() {
        let error = HistoryError::new(Outer(fmt::Error));
        assert_eq!(error.to_string(), "cannot use the file");
        assert!(error.of_store().is::<Outer>());
        assert!(error.source().is_some_and(|cause| cause.is::<fmt::Error>()));
    }
}
