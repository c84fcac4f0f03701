//! Why a request is not answered, as an answer.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use sonar_view::page::{RequestProblem, SCHEMA};
use sonar_view::past::PastError;

use crate::access::AccessDenied;
use crate::limits::PageRefusal;

/// Why a request is not answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageProblem {
    pub(crate) kind: PageRefusal,
    words: String,
    parameter: Option<String>,
}

impl PageProblem {
    /// With a sentence that says what is wrong and what helps.
    pub(crate) fn new(kind: PageRefusal, words: impl Into<String>) -> Self {
        Self { kind, words: words.into(), parameter: None }
    }

    /// About this parameter.
    pub(crate) fn of_parameter(self, name: impl Into<String>) -> Self {
        Self { parameter: Some(name.into()), ..self }
    }

    /// That a parameter is wrong.
    pub(crate) fn wrong(name: &str, words: impl Into<String>) -> Self {
        Self::new(PageRefusal::Question, words).of_parameter(name)
    }

    /// That the history cannot be read, or that the answer cannot be made, because of this.
    pub fn failed(error: &dyn std::error::Error) -> Self {
        let mut words = error.to_string();
        let mut cause = error.source();
        while let Some(one) = cause {
            let text = one.to_string();
            if !words.ends_with(&text) {
                words = format!("{words}: {text}");
            }
            cause = one.source();
        }
        Self::new(PageRefusal::Failed, words)
    }

    const fn status(&self) -> StatusCode {
        match self.kind {
            PageRefusal::Host => StatusCode::MISDIRECTED_REQUEST,
            PageRefusal::Origin => StatusCode::FORBIDDEN,
            PageRefusal::Access => StatusCode::UNAUTHORIZED,
            PageRefusal::Address | PageRefusal::NothingStored => StatusCode::NOT_FOUND,
            PageRefusal::Body => StatusCode::PAYLOAD_TOO_LARGE,
            PageRefusal::Question | PageRefusal::TooMuch => StatusCode::BAD_REQUEST,
            PageRefusal::Rate => StatusCode::TOO_MANY_REQUESTS,
            PageRefusal::Busy
            | PageRefusal::Late
            | PageRefusal::Connections
            | PageRefusal::Slow
            | PageRefusal::Handshake => StatusCode::SERVICE_UNAVAILABLE,
            PageRefusal::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl From<AccessDenied> for PageProblem {
    fn from(denied: AccessDenied) -> Self {
        Self::new(PageRefusal::Access, denied.words())
    }
}

impl From<PastError> for PageProblem {
    fn from(error: PastError) -> Self {
        let kind = match &error {
            PastError::Unreadable { .. } | PastError::Unwritable(_) => return Self::failed(&error),
            PastError::NothingStored(_) => PageRefusal::NothingStored,
            PastError::WrongQuestion(_) | PastError::Incomparable(_) => PageRefusal::Question,
        };
        Self::new(kind, error.to_string())
    }
}

impl IntoResponse for PageProblem {
    fn into_response(self) -> Response {
        let (status, refusal) = (self.status(), self.kind);
        let document = RequestProblem {
            schema: SCHEMA,
            kind: "problem",
            version: env!("CARGO_PKG_VERSION"),
            reason: self.kind.name(),
            words: self.words,
            parameter: self.parameter,
        };
        // Texts and numbers can always be written.
        let body = serde_json::to_vec(&document).unwrap_or_default();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        let headers = response.headers_mut();
        match refusal {
            PageRefusal::Access => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            PageRefusal::Rate | PageRefusal::Busy => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        // Counted where all answers pass.
        response.extensions_mut().insert(refusal);
        response
    }
}
