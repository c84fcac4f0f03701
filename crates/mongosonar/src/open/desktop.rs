//! The browser of whoever sits at this machine.
//!
//! Every user can read the command lines of all processes, and whoever uses a link first gets the session. So the browser
//! is started with the name of a file that only its user can read, and the file leads to the link. Jupyter does the same.

use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use sonar_sys::trust;

/// What opens a file by the program that the desktop has for it.
const OPENER: &str = "xdg-open";
/// Variables that a remote session has.
const REMOTE: [&str; 3] = ["SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY"];

/// Writes its input into a file of its user, opens that, and removes it when the browser has read it. A browser that is
/// confined (snap) reads only what is in the home folder, under a name that does not begin with a dot.
const SCRIPT: &str = r#"
umask 077
home=$(getent passwd "$(id -u)" | cut -d: -f6)
export HOME="${home:-$HOME}"
file=$(mktemp "$HOME/mongosonar-XXXXXXXXXX.html") || exit 1
cat > "$file" || { rm -f "$file"; exit 1; }
{ xdg-open "$file" & sleep 60; rm -f "$file"; } > /dev/null 2>&1 &
"#;

/// A desktop that shows what is opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Desktop {
    /// Whose it is; `None`: that of the user of this process.
    owner: Option<DesktopUser>,
}

/// A user who called `sudo`.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
struct DesktopUser {
    user: u32,
    group: u32,
}

impl Desktop {
    /// That of this session; `None` if it has none, is on another machine, or only root could open something.
    pub fn find() -> Option<Self> {
        let desktop = Self::of(&|name| std::env::var(name).ok(), trust::is_root())?;
        has_program(&std::env::var_os("PATH")?, OPENER).then_some(desktop)
    }

    /// That of a session with these variables.
    fn of(variable: &dyn Fn(&str) -> Option<String>, is_root: bool) -> Option<Self> {
        let is_set = |name: &str| variable(name).is_some_and(|value| !value.is_empty());
        // A display with the name of a host is that of `ssh -X`; sudo removes the variables of ssh.
        let is_here = |display: String| display.starts_with(':') || display.starts_with("unix:");
        let has_display = is_set("WAYLAND_DISPLAY") || variable("DISPLAY").is_some_and(is_here);
        if !has_display || REMOTE.into_iter().any(is_set) {
            return None;
        }
        let number = |name: &str| variable(name)?.parse::<u32>().ok();
        // A browser of root would be one with all rights, and without the profile of whoever sits there.
        let owner = match is_root {
            false => None,
            true => Some(DesktopUser {
                user: number("SUDO_UID").filter(|user| *user != 0)?,
                group: number("SUDO_GID")?,
            }),
        };
        Some(Self { owner })
    }

    /// Opens a link in the browser. It does not wait for that.
    ///
    /// # Errors
    /// Its user cannot have a file with the link.
    pub fn open(&self, link: &str) -> io::Result<()> {
        open_by(self.shell(), link)
    }

    /// A shell of the owner that runs the script.
    fn shell(&self) -> Command {
        let mut shell = Command::new("/bin/sh");
        // Ctrl-C in the terminal does not end the browser.
        shell.args(["-c", SCRIPT]).process_group(0).current_dir("/");
        if let Some(DesktopUser { user, group }) = self.owner {
            let folder = format!("/run/user/{user}");
            shell.uid(user).gid(group).env("DBUS_SESSION_BUS_ADDRESS", format!("unix:path={folder}/bus"));
            shell.env("XDG_RUNTIME_DIR", folder);
        }
        shell
    }
}

/// Hands the link to the script.
fn open_by(mut shell: Command, link: &str) -> io::Result<()> {
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    // It may have ended by itself, and says so below.
    let written =
        child.stdin.take().map_or(Ok(()), |mut input| input.write_all(redirection(link).as_bytes()));
    match child.wait()?.success() {
        true => written,
        false => Err(io::Error::other("no file with the link can be written in the home folder")),
    }
}

/// A page that leads to a link at once.
fn redirection(link: &str) -> String {
    let link = link.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    format!(
        "<!doctype html>\n<meta charset=\"utf-8\">\n<title>mongosonar</title>\n\
         <meta http-equiv=\"refresh\" content=\"0; url={link}\">\n<a href=\"{link}\">mongosonar</a>\n"
    )
}

/// Whether a folder of this search path has a program.
fn has_program(path: &OsStr, name: &str) -> bool {
    std::env::split_paths(path).map(|folder: PathBuf| folder.join(name)).any(|program| program.is_file())
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    fn found(variables: &[(&str, &str)], is_root: bool) -> Option<Desktop> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Desktop::of(&variable, is_root)
    }

    #[test]
    fn only_who_sits_at_this_machine_has_a_desktop() {
        let own = Some(Desktop { owner: None });
        for here in [("DISPLAY", ":0"), ("DISPLAY", "unix:1"), ("WAYLAND_DISPLAY", "wayland-0")] {
            assert_eq!(found(&[here], false), own, "{here:?}");
            for remote in REMOTE {
                assert_eq!(found(&[here, (remote, "10.0.0.2 5 10.0.0.1 22")], false), None, "{remote}");
            }
        }
        for none in
            [("DISPLAY", ""), ("WAYLAND_DISPLAY", ""), ("DISPLAY", "localhost:10.0"), ("TERM", "xterm")]
        {
            assert_eq!(found(&[none], false), None, "{none:?}");
        }
    }

    #[test]
    fn no_browser_is_started_as_root() {
        let display = ("DISPLAY", ":0");
        assert_eq!(found(&[display], true), None);
        let caller = [display, ("SUDO_UID", "1000"), ("SUDO_GID", "100")];
        assert_eq!(
            found(&caller, true),
            Some(Desktop { owner: Some(DesktopUser { user: 1_000, group: 100 }) })
        );
        for wrong in [[("SUDO_UID", "0"), ("SUDO_GID", "0")], [("SUDO_UID", "x"), ("SUDO_GID", "100")]] {
            assert_eq!(found(&[display, wrong[0], wrong[1]], true), None, "{wrong:?}");
        }
        assert_eq!(found(&[display, ("SUDO_UID", "1000")], true), None);
    }

    /// A program of the tests in place of another one.
    fn program(folder: &Path, name: &str, script: &str) {
        let path = folder.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    }

    fn wait_for(what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..6_000 {
            if is_so() {
                return;
            }
            // span: between two looks
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("waiting for {what}");
    }

    #[test]
    fn the_browser_gets_the_name_of_a_file_that_leads_to_the_link_and_goes_again() {
        let folder = tempfile::tempdir().unwrap();
        let [home, programs] = ["home", "programs"].map(|name| folder.path().join(name));
        for made in [&home, &programs] {
            fs::create_dir(made).unwrap();
        }
        let shown = folder.path().display();
        program(&programs, "getent", &format!("echo 'user:x:1:1:User:{shown}/home:/bin/sh'"));
        let asked = format!("stat -c '%a %s' \"$1\" > {shown}/mode; cp \"$1\" {shown}/page");
        program(
            &programs,
            OPENER,
            &format!("{asked}; echo \"$*\" > {shown}/new; mv {shown}/new {shown}/asked"),
        );
        program(&programs, "sleep", &format!("while [ ! -e {shown}/read ]; do :; done"));
        assert!(has_program(programs.as_os_str(), OPENER) && !has_program(home.as_os_str(), OPENER));
        let mut shell = Desktop { owner: None }.shell();
        shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        let link = "http://127.0.0.1:8517/?from=a&to=b#secret";
        open_by(shell, link).unwrap();
        wait_for("the browser", || folder.path().join("asked").exists());
        let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        let file = PathBuf::from(read("asked").trim_end());
        assert!(file.starts_with(&home) && !read("asked").contains("secret"), "{file:?}");
        assert!(!file.file_name().unwrap().to_string_lossy().starts_with('.'), "{file:?}");
        assert!(read("mode").starts_with("600 "), "{}", read("mode"));
        let page = read("page");
        assert!(page.contains("url=http://127.0.0.1:8517/?from=a&amp;to=b#secret\""), "{page}");
        fs::write(folder.path().join("read"), "").unwrap();
        wait_for("the end of the file", || !file.exists());
    }

    #[test]
    fn a_user_without_a_home_folder_gets_no_file() {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), "getent", "echo 'user:x:1:1:User:/nonexistent:/bin/sh'");
        let mut shell = Desktop { owner: None }.shell();
        shell.env("PATH", format!("{}:/usr/bin:/bin", folder.path().display()));
        let error = open_by(shell, "http://127.0.0.1:8517/#secret").unwrap_err();
        assert!(error.to_string().contains("home folder"), "{error}");
    }

    #[test]
    fn a_link_ends_neither_the_attribute_nor_the_element_that_it_stands_in() {
        let page = redirection("\"><script>alert(1)</script>");
        assert!(!page.contains("<script") && page.contains("&quot;>&lt;script>"), "{page}");
    }
}
