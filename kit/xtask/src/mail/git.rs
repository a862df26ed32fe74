// SPDX-License-Identifier: GPL-2.0-only
//! What git gets to make the mails: a sender, and commits.

use std::fmt::Write;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use crate::host::proc;
use crate::kernel::patch::Content;

/// The sender and the date of the mails. The same checkout always gives the same mails.
pub struct Identity {
    pub name: String,
    pub email: String,
    /// The time in seconds since 1970.
    pub date: String,
}

impl Identity {
    /// Asks the host's git for the sender, and for the date of the last commit. Without git, the
    /// sender is a placeholder.
    pub fn of(repo: &Path) -> Self {
        let get = |args: &[&str], placeholder: &str| {
            host_git(repo, args).unwrap_or_else(|| placeholder.to_string())
        };
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = now.unwrap_or_default().as_secs().to_string();
        Identity {
            name: get(&["config", "user.name"], "Name of the Sender"),
            email: get(&["config", "user.email"], "sender@example.org"),
            date: get(&["log", "-1", "--format=%ct"], &now),
        }
    }
}

/// Returns the output of the host's git in a folder, if it succeeds and writes any.
pub fn host_git(dir: &Path, args: &[&str]) -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(dir).args(args);
    let said = proc::output(git).ok()?.trim().to_string();
    (!said.is_empty()).then_some(said)
}

/// Commits for `git fast-import`.
pub struct Stream<'a> {
    identity: &'a Identity,
    pub bytes: Vec<u8>,
}

impl<'a> Stream<'a> {
    /// Returns an empty stream.
    pub fn new(identity: &'a Identity) -> Self {
        Stream {
            identity,
            bytes: Vec::new(),
        }
    }

    /// Adds a commit to a branch. `from` is the branch that a new branch begins at.
    pub fn commit(&mut self, branch: &str, message: &str, files: &Content, from: Option<&str>) {
        let Identity { name, email, date } = self.identity;
        let mut head = format!("commit refs/heads/{branch}\n");
        let _ = writeln!(head, "committer {name} <{email}> {date} +0000");
        let _ = writeln!(head, "data {}\n{message}", message.len());
        if let Some(from) = from {
            let _ = writeln!(head, "from refs/heads/{from}");
        }
        self.bytes.extend(head.bytes());
        for (path, file) in files {
            match file {
                Some(file) => {
                    let mode = if file.executable { "100755" } else { "100644" };
                    let head = format!("M {mode} inline {path}\ndata {}\n", file.data.len());
                    self.bytes.extend(head.bytes());
                    self.bytes.extend(&file.data);
                    self.bytes.push(b'\n');
                }
                None => self.bytes.extend(format!("D {path}\n").bytes()),
            }
        }
        self.bytes.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::patch::File;

    #[test]
    fn commits_as_git_reads_them() {
        let identity = Identity {
            name: "A".to_string(),
            email: "a@b".to_string(),
            date: "7".to_string(),
        };
        let mut stream = Stream::new(&identity);
        let file = File {
            data: b"x\n".to_vec(),
            executable: true,
        };
        let files = Content::from([("a".to_string(), Some(file)), ("b".to_string(), None)]);
        stream.commit("series", "s\n\nß\n", &files, Some("base"));
        assert_eq!(
            String::from_utf8(stream.bytes).unwrap(),
            "commit refs/heads/series\ncommitter A <a@b> 7 +0000\ndata 6\ns\n\nß\n\n\
             from refs/heads/base\nM 100755 inline a\ndata 2\nx\n\nD b\n\n"
        );
    }
}
