//! Log lines that were made from a file in another format, and wait to be read.

/// Stands for what cannot be read: the reader counts it as a line that cannot be parsed.
pub const BROKEN: &[u8] = b"{\"t\":{\"$date\":\"\"},\"msg\":\n";
/// Stands for what has no line: the reader counts it as a line of something else.
pub const FOREIGN: &[u8] = b"{}\n";

/// What was made and not yet handed out.
#[derive(Default)]
pub struct MadeLines {
    /// The lines, each with its line feed.
    pub bytes: Vec<u8>,
    at: usize,
}

impl MadeLines {
    /// Fills the buffer, as far as there is something; returns how many bytes.
    pub fn hand_out(&mut self, buffer: &mut [u8]) -> usize {
        let rest = &self.bytes[self.at..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        self.at += count;
        if self.at == self.bytes.len() {
            self.bytes.clear();
            self.at = 0;
        }
        count
    }

    /// Adds each line of a text that comes from another program.
    pub fn add_text(&mut self, text: &[u8]) {
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
            self.bytes.extend_from_slice(b"| ");
            self.bytes.extend_from_slice(line);
            self.bytes.push(b'\n');
        }
    }

    /// What comes last is cut: without its line feed it is a line that has not been written to its end.
    pub fn add_cut(&mut self) {
        self.bytes.extend_from_slice(BROKEN.trim_ascii_end());
    }
}
