//! What the agent says of itself, in its log and in its status.

/// The most notices that the status shows.
const MAX_NOTICES: usize = 20;

/// The newest notices, in order.
#[derive(Debug, Default)]
pub struct Notices(Vec<String>);

impl Notices {
    /// The status shows this from now on.
    pub fn note(&mut self, text: String) {
        if self.0.len() >= MAX_NOTICES {
            self.0.remove(0);
        }
        self.0.push(text);
    }

    /// The log says this, and the status shows it.
    pub fn say(&mut self, text: String) {
        eprintln!("mongosonar: {text}");
        self.note(text);
    }

    /// The same once: `said` is what was last said of this, if that is still so.
    pub fn say_once(&mut self, said: &mut Option<String>, text: String) {
        if said.as_ref() != Some(&text) {
            self.say(text.clone());
            *said = Some(text);
        }
    }

    /// All that the status shows.
    pub fn all(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_notices_are_shown() {
        let mut notices = Notices::default();
        (0..MAX_NOTICES + 2).for_each(|number| notices.note(number.to_string()));
        assert_eq!((notices.all().len(), &*notices.all()[0]), (MAX_NOTICES, "2"));
        notices.say("the last one".to_owned());
        assert_eq!(notices.all().last().unwrap(), "the last one");
    }

    #[test]
    fn a_problem_is_said_once_until_it_passes_or_is_another() {
        let (mut notices, mut said) = (Notices::default(), None);
        for why in ["denied", "denied", "no memory", "denied"] {
            notices.say_once(&mut said, why.to_owned());
        }
        assert_eq!(notices.all(), ["denied", "no memory", "denied"]);
        said = None;
        notices.say_once(&mut said, "denied".to_owned());
        assert_eq!(notices.all().len(), 4);
    }
}
