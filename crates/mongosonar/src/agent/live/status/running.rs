//! The operations that a server works on, as it says itself: asked for as long as somebody looks.

use std::time::{Duration, Instant};

use sonar_core::Endpoint;
use sonar_decode::current_op::CurrentOpReader;
use sonar_mongo::{Server, ServerError};
use sonar_view::kit::server_name;
use sonar_view::now::ServerOperations;

use crate::agent::live::now::board::{LIST_EVERY, RunningBoard};

/// When to ask again after a server has not answered, and after the user may not ask.
const AGAIN: Duration = Duration::from_secs(10);
const REFUSED: Duration = Duration::from_secs(300);

/// When a server is asked next.
#[derive(Debug, Default)]
pub struct RunningSchedule {
    again: Option<Instant>,
    /// Why it was not asked since, if it refused or did not answer.
    problem: Option<String>,
}

/// Asks a server with this name, and reads the shapes of at most `most` operations.
///
/// # Errors
/// It did not answer, or the user may not ask.
pub fn list(server: &Server, name: Endpoint, most: usize) -> Result<ServerOperations, ServerError> {
    let mut reader = CurrentOpReader::default();
    reader.bson(&server.running(most)?);
    Ok(ServerOperations::new(name, &reader.finish().operations, most))
}

impl RunningSchedule {
    /// Asks the server with this name by `list`, if somebody looks and it is time; says why not if it does not answer.
    pub fn ask(
        &mut self,
        board: &RunningBoard,
        name: Endpoint,
        list: impl FnOnce() -> Result<ServerOperations, ServerError>,
    ) {
        let now = Instant::now();
        if !board.is_wanted(now) {
            return;
        }
        if self.again.is_some_and(|again| now < again) {
            if let Some(problem) = &self.problem {
                board.set_server(now, name, not_said(problem));
            }
            return;
        }
        let (wait, said) = match list() {
            Ok(said) => {
                self.problem = None;
                (LIST_EVERY, said)
            }
            Err(error) => {
                let problem = format!("{}: {error}", server_name(name));
                let said = not_said(&problem);
                self.problem = Some(problem);
                let is_refused = matches!(error, ServerError::Unauthorized { .. });
                (if is_refused { REFUSED } else { AGAIN }, said)
            }
        };
        self.again = Some(now + wait);
        board.set_server(Instant::now(), name, said);
    }
}

fn not_said(problem: &str) -> ServerOperations {
    ServerOperations { problem: Some(problem.to_owned()), ..ServerOperations::default() }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn a_server_is_asked_once_a_second_while_somebody_looks_and_its_refusal_is_shown() {
        let (board, name) = (RunningBoard::default(), Endpoint::v4([0; 4], 27_017));
        let mut schedule = RunningSchedule::default();
        let asked = Cell::new(0);
        let works = || {
            asked.set(asked.get() + 1);
            Ok(ServerOperations { left_out: 3, ..ServerOperations::default() })
        };
        schedule.ask(&board, name, works);
        assert_eq!(asked.get(), 0, "nobody looks");
        board.want(Instant::now());
        schedule.ask(&board, name, works);
        schedule.ask(&board, name, works);
        assert_eq!((asked.get(), board.servers(Instant::now())[0].left_out), (1, 3));
        // Its time has come again.
        schedule.again = None;
        board.want(Instant::now());
        schedule.ask(&board, name, || Err(ServerError::Reply("$currentOp")));
        schedule.ask(&board, name, works);
        let said = board.servers(Instant::now());
        assert!(said[0].problem.as_deref().is_some_and(|text| text.starts_with("27017: ")), "{said:?}");
        assert_eq!(asked.get(), 1, "it is not asked again for a while");
    }
}
