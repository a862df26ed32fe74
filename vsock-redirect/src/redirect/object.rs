// SPDX-License-Identifier: GPL-2.0-only
//! Loads the BPF object, and takes its maps and programs.

use std::sync::{Mutex, OnceLock};

use anyhow::{bail, Context, Result};
use aya::maps::{Map, MapData, SockMap};
use aya::programs::SkSkb;
use aya::{include_bytes_aligned, Ebpf, EbpfLoader};

use super::error::explain;

static OBJECT: &[u8] = include_bytes_aligned!(concat!(env!("OUT_DIR"), "/redirect.bpf.o"));

/// Loads the object. This makes new maps each time.
pub fn load() -> Result<Ebpf> {
    // One loader for all redirects: a new one reads the BTF of the kernel, which is not needed.
    static LOADER: OnceLock<Mutex<EbpfLoader<'static>>> = OnceLock::new();
    let loader = LOADER.get_or_init(|| {
        let mut loader = EbpfLoader::new();
        loader.btf(None);
        Mutex::new(loader)
    });
    loader
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
        .load(OBJECT)
        .map_err(explain)
}

pub fn take_array(ebpf: &mut Ebpf, name: &str) -> Result<MapData> {
    match ebpf.take_map(name) {
        Some(Map::Array(data)) => Ok(data),
        _ => bail!("the BPF object has no array '{name}'"),
    }
}

pub fn take_sockmap(ebpf: &mut Ebpf, name: &str) -> Result<SockMap<MapData>> {
    let map = ebpf.take_map(name);
    let map = map.with_context(|| format!("the BPF object has no map '{name}'"))?;
    Ok(SockMap::try_from(map)?)
}

/// Loads a program and attaches it to a map.
pub fn attach(ebpf: &mut Ebpf, name: &str, map: &SockMap<MapData>) -> Result<()> {
    let program = ebpf.program_mut(name);
    let program: &mut SkSkb = program
        .with_context(|| format!("the BPF object has no program '{name}'"))?
        .try_into()?;
    program.load().map_err(explain)?;
    program.attach(map.fd()).map_err(explain)?;
    Ok(())
}
