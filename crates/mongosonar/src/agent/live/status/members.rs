//! The members of a replica set: how far each is behind, and what happened to them.

use std::collections::BTreeMap;

use sonar_core::history::metrics::{MEMBER_LAG, MEMBER_STATE};
use sonar_core::history::{Event, EventKind};
use sonar_core::internals::Member;
use sonar_core::{Endpoint, Timestamp};
use sonar_mongo::server_status::ReplicaSetStatus;

use super::samples::StatusSamples;

/// Remembers the members between two answers.
#[derive(Clone, Debug, Default)]
pub struct MemberWatch {
    states: BTreeMap<String, i64>,
    term: Option<u64>,
}

impl MemberWatch {
    /// What happened since the last answer: states of other members, and elections. The state of the server itself is
    /// in its samples.
    pub fn changes(&mut self, server: Endpoint, at: Timestamp, set: &ReplicaSetStatus) -> Vec<Event> {
        let mut events = Vec::new();
        let states: BTreeMap<String, i64> =
            set.members.iter().map(|member| (member.name.clone(), member.state)).collect();
        for member in set.members.iter().filter(|member| !member.is_self) {
            if self.states.get(&member.name).is_some_and(|before| *before != member.state) {
                let text = format!("the member is now {}", member.state_name);
                events.push(Event::new(at, EventKind::StateChange, server, &text).about(&member.name));
            }
        }
        self.states = states;
        let primary = set.members.iter().find(|member| member.state == Member::PRIMARY);
        // The term rises before the election is decided.
        if let (Some(term), Some(primary)) = (set.term, primary)
            && self.term.replace(term).is_some_and(|before| before < term)
        {
            let text = format!("{} was elected primary in term {term}", primary.name);
            events.push(Event::new(at, EventKind::Election, server, &text));
        }
        events
    }
}

/// Adds state and lag of each member.
pub fn add(samples: &mut StatusSamples<'_>, set: &ReplicaSetStatus) {
    let has_applied = |state: i64| {
        let with_state = set.members.iter().filter(move |member| member.state == state);
        with_state.filter(|member| member.optime_ms > 0)
    };
    for member in &set.members {
        samples.add(MEMBER_STATE, &member.name, member.state as f64);
    }
    let Some(primary) = has_applied(Member::PRIMARY).next() else { return };
    for member in has_applied(Member::SECONDARY) {
        let lag = primary.optime_ms.saturating_sub(member.optime_ms).max(0);
        samples.add(MEMBER_LAG, &member.name, lag as f64);
    }
}

#[cfg(test)]
mod tests {
    use sonar_core::history::{HistoryWindow, Resolution};
    use sonar_mongo::bson::Document;
    use sonar_mongo::server_status::MemberStatus;

    use super::*;

    const SERVER: Endpoint = Endpoint::v4([0; 4], 5);

    fn set(term: u64, members: &[(&str, i64, i64)]) -> ReplicaSetStatus {
        let member = |(name, state, optime_ms): &(&str, i64, i64)| MemberStatus {
            name: (*name).to_owned(),
            state: *state,
            state_name: if *state == 1 { "PRIMARY" } else { "SECONDARY" }.to_owned(),
            is_self: *name == "a:1",
            optime_ms: *optime_ms,
        };
        let members = members.iter().map(member).collect();
        ReplicaSetStatus { term: Some(term), members, document: Document::new() }
    }

    #[test]
    fn changes_of_other_members_and_elections_are_events_once() {
        let mut watch = MemberWatch::default();
        let at = Timestamp::from_unix(1_000, 0);
        let mut texts = |term, members: &[(&str, i64, i64)]| -> Vec<String> {
            let events = watch.changes(SERVER, at, &set(term, members));
            events
                .iter()
                .map(|event| format!("{} {} {}", event.kind.name(), event.subject, event.text))
                .collect()
        };
        assert!(texts(1, &[("a:1", 1, 9), ("b:2", 2, 9)]).is_empty(), "nothing is known of before");
        assert!(texts(2, &[("a:1", 2, 9), ("b:2", 2, 9)]).is_empty(), "not decided yet");
        assert_eq!(
            texts(2, &[("a:1", 2, 9), ("b:2", 1, 9)]),
            ["state_change b:2 the member is now PRIMARY", "election  b:2 was elected primary in term 2"]
        );
        assert!(texts(2, &[("a:1", 2, 9), ("b:2", 1, 9)]).is_empty());
    }

    #[test]
    fn lag_is_behind_the_primary_of_those_that_have_applied_something() {
        let at = Timestamp::from_unix(1_000, 0);
        let lags = |members: &[(&str, i64, i64)]| -> Vec<(String, f64)> {
            let mut window = HistoryWindow::new(at, Resolution::TenSeconds);
            add(&mut StatusSamples { window: &mut window, server: SERVER, at }, &set(1, members));
            assert_eq!(
                window.series.keys().filter(|key| &*key.metric == MEMBER_STATE.name).count(),
                members.len()
            );
            let lag = window.series.iter().filter(|(key, _)| &*key.metric == MEMBER_LAG.name);
            lag.map(|(key, value)| (key.name.to_string(), value.last)).collect()
        };
        let all = [("a:1", 1, 9_000), ("b:2", 2, 7_000), ("c:3", 2, 9_500), ("d:4", 2, 0), ("e:5", 8, 1)];
        assert_eq!(lags(&all), [("b:2".to_owned(), 2_000.0), ("c:3".to_owned(), 0.0)]);
        assert_eq!(lags(&all[1..]), [], "no primary");
    }
}
