//! Requests and replies, each whole: a message that a template recognises says what a walk of it says, whatever
//! messages the templates were made of.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sonar_core::operation::Opcode;
use sonar_decode::bson::NumberSlot;
use sonar_decode::message::{
    MessageBody, MessageSource, Reply, Request, SlotValues, Template, TemplateMatch, Templates,
};
use sonar_fuzz::Input;

fuzz_target!(|input: &[u8]| {
    let mut input = Input(input);
    let (mut requests, mut replies) = (Requests::default(), Templates::default());
    while !input.is_empty() {
        // A message, and the same with some bytes changed, as another of the same layout would have.
        let length = usize::from(input.u16() & 0x07ff);
        let body = input.take(length);
        let mut changed = body.to_vec();
        for _ in 0..input.byte() % 4 {
            let (at, byte) = (usize::from(input.u16()), input.byte());
            if let Some(place) = changed.get_mut(at) {
                *place = byte;
            }
        }
        for body in [body, &changed, body] {
            requests.check(body);
            check_reply(&mut replies, body);
        }
    }
});

#[derive(Default)]
struct Requests {
    templates: Templates<String>,
    request: Request<()>,
}

impl Requests {
    fn check(&mut self, body: &[u8]) {
        let walked = walk(body, &mut self.request);
        match self.templates.find(body) {
            TemplateMatch::Known(known, numbers) => {
                assert_eq!(walked, Some((known.clone(), numbers.get(NumberSlot::Cursor))));
            }
            TemplateMatch::Wanted(place) => {
                if let Some((facts, cursor)) = walked
                    && let Some((template, numbers)) = Template::new(body, &mut self.request, facts)
                    && numbers.get(NumberSlot::Cursor) == cursor
                {
                    self.templates.add(place, template);
                }
            }
            TemplateMatch::Unknown => {}
        }
    }
}

/// What a walk finds in a request, and the cursor that it names; `None` if it is not a request.
fn walk(body: &[u8], request: &mut Request<()>) -> Option<(String, Option<i64>)> {
    let mut reader = MessageBody::default();
    request.reset(Opcode::Msg);
    reader.begin(Opcode::Msg, body.len() as u64);
    reader.feed(body, &mut MessageSource::Request(request)).ok()?;
    if reader.left() > 0 || request.command.bytes().is_empty() {
        return None;
    }
    let statements: Vec<_> = request
        .builder
        .statements()
        .iter()
        .map(|one| (one.unordered, one.ordered, one.namespace, one.count))
        .collect();
    let whole = request.builder.finish();
    let facts = format!(
        "{statements:?} {} {} {} {} {:?} {} {} {} {} {} {} {} {} {} {} {}",
        whole.unordered,
        whole.ordered,
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
    Some((facts, request.cursor))
}

fn check_reply(templates: &mut Templates<Reply>, body: &[u8]) {
    let (mut reader, mut reply) = (MessageBody::default(), Reply::default());
    reader.begin(Opcode::Msg, body.len() as u64);
    let read = reader.feed::<()>(body, &mut MessageSource::Reply(&mut reply));
    let walked = (read.is_ok() && reader.left() == 0).then_some(reply);
    let known_as = |known: &Reply, numbers: &SlotValues| {
        let mut reply = Reply::default();
        reply.become_known(known, numbers);
        reply
    };
    match templates.find(body) {
        TemplateMatch::Known(known, numbers) => assert_eq!(walked, Some(known_as(known, &numbers))),
        TemplateMatch::Wanted(place) => {
            if let Some(reply) = walked
                && let Some((template, numbers)) = Template::new(body, &mut Reply::default(), reply.clone())
                && known_as(&reply, &numbers) == reply
            {
                templates.add(place, template);
            }
        }
        TemplateMatch::Unknown => {}
    }
}
