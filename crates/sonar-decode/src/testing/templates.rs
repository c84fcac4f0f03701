//! Compares templates with walks, for tests and fuzzing: a message that a template recognises gives what a walk gives.

use sonar_core::operation::Opcode;

use crate::bson::NumberSlot;
use crate::identity::ids_of;
use crate::message::{
    MessageBody, MessageSource, Reply, Request, SlotValues, Template, TemplateMatch, Templates,
};

/// What a walk finds in a request, as text, and the cursor that it names; `None` if it is not a request.
fn walk(body: &[u8], request: &mut Request<()>) -> Option<(String, Option<i64>)> {
    let mut reader = MessageBody::default();
    request.reset(Opcode::Msg);
    reader.begin(Opcode::Msg, body.len() as u64);
    reader.feed(body, &mut MessageSource::Request(request)).ok()?;
    if reader.left() > 0 || request.command.bytes().is_empty() {
        return None;
    }
    let (ids, ()) = ids_of(request);
    let text = format!(
        "{ids:?} {} {} {:?} {} {:?} {:?} {:?} {} {} {} {} {} {} {}",
        request.builder.statement_count,
        request.builder.over_cap,
        request.kind,
        request.is_get_last_error(),
        request.command.text(),
        request.database.text(),
        request.collection.text(),
        request.has_database,
        request.from_server,
        request.unacknowledged,
        request.max_time,
        request.awaits_topology,
        request.opens_waiting_cursor(),
        request.explain,
    );
    Some((text, request.cursor))
}

/// Recognises and walks requests, and compares.
#[derive(Default)]
pub struct RequestChecker {
    /// The templates so far.
    pub templates: Templates<String>,
    request: Request<()>,
    /// Requests that a template recognised.
    pub known: u32,
    /// Requests that none did.
    pub walked: u32,
}

impl RequestChecker {
    /// Checks one request.
    ///
    /// # Panics
    /// A template finds something else than a walk.
    pub fn check(&mut self, body: &[u8]) {
        let walked = walk(body, &mut self.request);
        match self.templates.find(body) {
            TemplateMatch::Known(text, numbers) => {
                assert_eq!(walked, Some((text.clone(), numbers.get(NumberSlot::Cursor))), "{body:?}");
                self.known += 1;
            }
            found => {
                self.walked += 1;
                if let (Some((text, cursor)), TemplateMatch::Wanted(place)) = (walked, found)
                    && let Some((template, numbers)) = Template::new(body, &mut self.request, text)
                    && numbers.get(NumberSlot::Cursor) == cursor
                {
                    self.templates.add(place, template);
                }
            }
        }
    }
}

/// Recognises and walks replies, and compares.
#[derive(Debug, Default)]
pub struct ReplyChecker {
    templates: Templates<Reply>,
    /// Replies that a template recognised.
    pub known: u32,
    /// Replies that none did.
    pub walked: u32,
}

impl ReplyChecker {
    /// Checks one reply.
    ///
    /// # Panics
    /// A template finds something else than a walk.
    pub fn check(&mut self, body: &[u8]) {
        let (mut reader, mut reply) = (MessageBody::default(), Reply::default());
        reader.begin(Opcode::Msg, body.len() as u64);
        let read = reader.feed::<()>(body, &mut MessageSource::Reply(&mut reply));
        let walked = (read.is_ok() && reader.left() == 0).then_some(reply);
        let of = |known: &Reply, numbers: &SlotValues| {
            let mut reply = Reply::default();
            reply.become_known(known, numbers);
            reply
        };
        match self.templates.find(body) {
            TemplateMatch::Known(known, numbers) => {
                assert_eq!(walked, Some(of(known, &numbers)), "{body:?}");
                self.known += 1;
            }
            found => {
                self.walked += 1;
                if let (Some(reply), TemplateMatch::Wanted(place)) = (walked, found)
                    && let Some((template, numbers)) =
                        Template::new(body, &mut Reply::default(), reply.clone())
                    && of(&reply, &numbers) == reply
                {
                    self.templates.add(place, template);
                }
            }
        }
    }
}
