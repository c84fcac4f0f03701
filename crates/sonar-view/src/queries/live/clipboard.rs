//! The clipboard of the terminal, by the control sequence OSC 52.
//!
//! <https://invisible-island.net/xterm/ctlseqs/ctlseqs.html>: `OSC 52 ; c ; BASE64 BEL`. It reaches the terminal
//! of the person through ssh too. tmux takes it with `set-clipboard on`, or hands it through with
//! `allow-passthrough on`, where each ESC inside is doubled: <https://github.com/tmux/tmux/wiki/Clipboard>.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// What to write to the terminal so that it copies `text`. `in_tmux`: for tmux, and past it.
pub fn sequence(text: &str, in_tmux: bool) -> String {
    let copy = format!("\x1b]52;c;{}\x07", STANDARD.encode(text));
    if !in_tmux {
        return copy;
    }
    let doubled = copy.replace('\x1b', "\x1b\x1b");
    format!("{copy}\x1bPtmux;{doubled}\x1b\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_copied_and_in_tmux_also_past_it() {
        // Encoded by coreutils: printf 0123456789abcdef | base64
        let copy = "\x1b]52;c;MDEyMzQ1Njc4OWFiY2RlZg==\x07";
        assert_eq!(sequence("0123456789abcdef", false), copy);
        assert_eq!(
            sequence("0123456789abcdef", true),
            "\x1b]52;c;MDEyMzQ1Njc4OWFiY2RlZg==\x07\x1bPtmux;\x1b\x1b]52;c;MDEyMzQ1Njc4OWFiY2RlZg==\x07\x1b\\"
        );
    }
}
