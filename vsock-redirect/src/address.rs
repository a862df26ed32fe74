// SPDX-License-Identifier: GPL-2.0-only
//! The two addresses of the command line, written as socat writes them.

use std::path::PathBuf;
use std::str::FromStr;

/// The UNIX socket to receive from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// `unix-recv:PATH`: datagrams to PATH, one direction.
    Datagrams(PathBuf),
    /// `unix-listen:PATH`: stream connections to PATH, both directions.
    Stream(PathBuf),
}

/// The vsock to connect to: `vsock-connect:CID:PORT`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    pub cid: u32,
    pub port: u32,
}

impl FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (keyword, path) = split(text)?;
        let make = match keyword.as_str() {
            "unix-recv" => Source::Datagrams,
            "unix-listen" => Source::Stream,
            _ => return Err("expected unix-recv:PATH or unix-listen:PATH".to_owned()),
        };
        // sun_path has 108 bytes, of which the terminating NUL takes one.
        match path.len() {
            0 => Err("the path is empty".to_owned()),
            1..=107 => Ok(make(PathBuf::from(path))),
            length => Err(format!(
                "the path has {length} bytes, but a socket path can have at most 107"
            )),
        }
    }
}

impl FromStr for Peer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (keyword, rest) = split(text)?;
        if keyword != "vsock-connect" {
            return Err("expected vsock-connect:CID:PORT".to_owned());
        }
        let (cid, port) = rest
            .split_once(':')
            .ok_or("expected vsock-connect:CID:PORT, but the port is missing")?;
        let cid = match cid {
            "host" => libc::VMADDR_CID_HOST,
            "local" => libc::VMADDR_CID_LOCAL,
            _ => number(cid)
                .ok_or_else(|| format!("'{cid}' is not a CID: use a number, host or local"))?,
        };
        let port = number(port).ok_or_else(|| format!("'{port}' is not a vsock port"))?;
        Ok(Peer { cid, port })
    }
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "vsock {}:{}", self.cid, self.port)
    }
}

/// Splits a keyword, of which the case does not matter (as in socat), from its address.
fn split(text: &str) -> Result<(String, &str), String> {
    let (keyword, rest) = text
        .split_once(':')
        .ok_or("expected KEYWORD:ADDRESS, but there is no colon")?;
    Ok((keyword.to_ascii_lowercase(), rest))
}

/// Parses a decimal number, or a hexadecimal one after `0x`. The number with all bits set means
/// "any", to which nothing can connect.
fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(hex) if !hex.starts_with('+') => u32::from_str_radix(hex, 16).ok()?,
        None if !text.starts_with('+') => text.parse().ok()?,
        _ => return None,
    };
    (value != u32::MAX).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources() {
        assert_eq!(
            "unix-recv:/run/a:b".parse(),
            Ok(Source::Datagrams(PathBuf::from("/run/a:b")))
        );
        assert_eq!(
            "UNIX-LISTEN:sock".parse(),
            Ok(Source::Stream(PathBuf::from("sock")))
        );
        for bad in ["", "unix-recv", "unix-recv:", "unix:/a", "/a"] {
            assert!(bad.parse::<Source>().is_err(), "{bad}");
        }
        let path = |length| format!("unix-recv:{}", "p".repeat(length));
        assert!(path(107).parse::<Source>().is_ok());
        assert!(path(108).parse::<Source>().is_err());
    }

    #[test]
    fn peers() {
        let peer = |cid, port| Ok(Peer { cid, port });
        assert_eq!("vsock-connect:2:1234".parse(), peer(2, 1234));
        assert_eq!("VSOCK-CONNECT:host:0x10".parse(), peer(2, 16));
        assert_eq!("vsock-connect:local:1".parse(), peer(1, 1));
        for bad in [
            "vsock-connect:2",
            "vsock-connect::1",
            "vsock-connect:2:",
            "vsock-connect:2:1:3",
            "vsock-connect:-1:5",
            "vsock-connect:+1:5",
            "vsock-connect:2:4294967295",
            "vsock-connect:2:4294967296",
            "vsock-connect:0x:1",
            "tcp:2:1",
            "2:1234",
        ] {
            assert!(bad.parse::<Peer>().is_err(), "{bad}");
        }
    }
}
