// SPDX-License-Identifier: GPL-2.0-only
//! How fast bytes go from one socket through another to a vsock, or out of one: written to the vsock
//! itself, copied by a loop, by socat, and redirected by a sockmap.
//!
//! All ends are on this machine, so that vsock is its loopback, unless there is a peer, which has
//! the far ends of the vsocks. Each measurement is one line of JSON; the arms take turns within a
//! round, so that what slows the machine slows them all.

mod blocking;
mod monitor;
pub mod peer;
mod worker;

use std::fs;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path as FilePath;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use clap::ValueEnum;
use nix::sys::resource::{setrlimit, Resource};
use nix::sys::socket::{
    accept4, connect, getsockname, setsockopt, sockopt, AddressFamily, SockFlag, SockType,
    UnixAddr, VsockAddr,
};
use nix::sys::time::TimeVal;
use serde_json::json;
use sockmap::{Map, Program};

use crate::checked::{loopback_listener, open, print};
use blocking::{drain, echo, give_up_after, receive, receive_all, send_all, write, LIMIT};
use monitor::{Monitor, Packet};
use peer::{Far, Peer};
use worker::Crew;

/// What socat reads at once. The copy loop reads twice that, as the largest datagram has to fit in.
const BUFFER: usize = 1 << 16;
/// A source without flow control is done when nothing has come for so long.
const IDLE: i64 = 200_000;
/// How many bytes are sent to count their packets.
const PACKETS_OF: usize = 1 << 20;
/// Of so many the memory is measured.
const IDLE_LANES: usize = 32;
/// The one socket of a map.
const KEY: u64 = 0;

/// From what kind of socket to what kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Path {
    UnixDgramToVsock,
    UnixStreamToVsock,
    TcpToVsock,
    UdpToVsock,
    VsockToUnixStream,
    VsockToTcp,
    VsockToVsock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    UnixDgram,
    UnixStream,
    Tcp,
    Udp,
    Vsock,
}

impl Path {
    fn kinds(self) -> (Kind, Kind) {
        match self {
            Path::UnixDgramToVsock => (Kind::UnixDgram, Kind::Vsock),
            Path::UnixStreamToVsock => (Kind::UnixStream, Kind::Vsock),
            Path::TcpToVsock => (Kind::Tcp, Kind::Vsock),
            Path::UdpToVsock => (Kind::Udp, Kind::Vsock),
            Path::VsockToUnixStream => (Kind::Vsock, Kind::UnixStream),
            Path::VsockToTcp => (Kind::Vsock, Kind::Tcp),
            Path::VsockToVsock => (Kind::Vsock, Kind::Vsock),
        }
    }

    /// Whether a write of `size` bytes is possible.
    fn takes(self, size: usize) -> bool {
        match self.kinds().0 {
            Kind::Udp => size <= 65_507,
            Kind::UnixDgram => size <= 131_072,
            _ => true,
        }
    }
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arm {
    /// Nothing: the program writes to the second socket itself.
    Direct,
    /// A process that receives and sends.
    Copy,
    Socat,
    Sockmap,
}

#[derive(clap::Args)]
pub struct Args {
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    paths: Vec<Path>,
    #[arg(long, value_enum, value_delimiter = ',', required = true)]
    arms: Vec<Arm>,
    /// Bytes of each write; without it, only round trips
    #[arg(long, value_delimiter = ',')]
    sizes: Vec<usize>,
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// How many at once
    #[arg(long, value_delimiter = ',', default_value = "1")]
    connections: Vec<usize>,
    /// How long the copy takes in a measurement
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 300)]
    time: u64,
    /// How many round trips of 64 bytes; 0 for none
    #[arg(long, default_value_t = 0)]
    trips: usize,
    /// Where `guest bench-peer` has the far ends of the vsocks; without it they are here
    #[arg(long, value_name = "CID:PORT")]
    peer: Option<Peer>,
    /// A vsockmon device, to count packets
    #[arg(long, value_name = "DEVICE")]
    monitor: Option<String>,
}

/// What is written to `writer` arrives at `source`; what is sent to `sink` arrives at `reader`.
struct Lane {
    writer: End,
    source: Option<OwnedFd>,
    sink: Option<OwnedFd>,
    reader: End,
    _helper: Helper,
}

/// An end of a lane.
enum End {
    Here(OwnedFd),
    There(Far),
}

impl End {
    fn write(&self, bytes: usize, size: usize, end: Instant) -> Result<()> {
        match self {
            End::Here(fd) => write(fd, bytes, size, end),
            End::There(far) => far.write(bytes, size),
        }
    }

    fn drain(&self, bytes: usize, end: Instant) -> Result<(usize, Instant)> {
        match self {
            End::Here(fd) => drain(fd, bytes, end),
            End::There(far) => Ok((far.drain(bytes)?, Instant::now())),
        }
    }

    fn echo(&self) -> Result<()> {
        match self {
            End::Here(fd) => echo(fd),
            End::There(far) => far.echo(),
        }
    }

    /// How long a read waits; an end that is not here has its own limit.
    fn read_limit(&self, limit: TimeVal) -> Result<()> {
        if let End::Here(fd) = self {
            setsockopt(fd, sockopt::ReceiveTimeout, &limit)?;
        }
        Ok(())
    }

    /// Of a vsock.
    fn port(&self) -> Result<u32> {
        match self {
            End::Here(fd) => vsock_port(fd),
            End::There(far) => Ok(far.address.port()),
        }
    }
}

fn vsock_port(fd: &OwnedFd) -> Result<u32> {
    Ok(getsockname::<VsockAddr>(fd.as_raw_fd())?.port())
}

/// What works for a lane and ends with it.
enum Helper {
    None,
    Socat(Child),
    /// Into the second socket, and back.
    Sockmap(#[allow(dead_code)] [(Map, Program); 2]),
}

impl Drop for Helper {
    fn drop(&mut self) {
        if let Helper::Socat(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// What is written to the first arrives at the second, and the other way round. The second of vsocks
/// is the peer's.
fn pair(kind: Kind, peer: Option<Peer>) -> Result<(OwnedFd, End)> {
    if let (Kind::Vsock, Some(peer)) = (kind, peer) {
        let far = peer.offer()?;
        let near = far.connect()?;
        give_up_after(&near, LIMIT)?;
        return Ok((near, End::There(far)));
    }
    let (near, far): (OwnedFd, OwnedFd) = match kind {
        Kind::UnixDgram => {
            let (near, far) = UnixDatagram::pair()?;
            // A large datagram has to fit in, as in the experiment that started it.
            setsockopt(&near, sockopt::SndBufForce, &(1 << 20))?;
            setsockopt(&far, sockopt::SndBufForce, &(1 << 20))?;
            (near.into(), far.into())
        }
        Kind::UnixStream => {
            let (near, far) = UnixStream::pair()?;
            (near.into(), far.into())
        }
        Kind::Tcp => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let near = TcpStream::connect(listener.local_addr()?)?;
            near.set_nodelay(true)?;
            let (far, _) = listener.accept()?;
            far.set_nodelay(true)?;
            (near.into(), far.into())
        }
        Kind::Udp => {
            let near = UdpSocket::bind("127.0.0.1:0")?;
            let far = UdpSocket::bind("127.0.0.1:0")?;
            near.connect(far.local_addr()?)?;
            far.connect(near.local_addr()?)?;
            (near.into(), far.into())
        }
        Kind::Vsock => {
            let (listener, address) = loopback_listener(SockType::Stream)?;
            let near = open(AddressFamily::Vsock, SockType::Stream)?;
            connect(near.as_raw_fd(), &address).context("connect over loopback")?;
            (near, accept4(&listener, SockFlag::SOCK_CLOEXEC)?)
        }
    };
    for fd in [&near, &far] {
        give_up_after(fd, LIMIT)?;
    }
    Ok((near, End::Here(far)))
}

/// A map with one socket, what arrives at which goes to the socket of another map.
fn splice(map: Map, socket: &OwnedFd, to: &Map) -> Result<(Map, Program)> {
    let program = Program::redirect(to, KEY as u32)?;
    map.attach(&program)?;
    map.insert(KEY, socket.as_fd())?;
    Ok((map, program))
}

fn socat(kind: Kind, peer: Option<Peer>) -> Result<Lane> {
    let path = "/tmp/bench.sock";
    let _ = fs::remove_file(path);
    let address = match kind {
        Kind::UnixDgram => format!("UNIX-RECV:{path}"),
        Kind::UnixStream => format!("UNIX-LISTEN:{path}"),
        _ => bail!("no socat for {kind:?}"),
    };
    let (waiting, to) = match peer {
        None => {
            let (listener, to) = loopback_listener(SockType::Stream)?;
            (End::Here(listener), to)
        }
        Some(peer) => {
            let far = peer.offer()?;
            let to = far.address;
            (End::There(far), to)
        }
    };
    let child = Command::new("socat")
        .args(["-u", "-b", &BUFFER.to_string(), &address])
        .arg(format!("VSOCK-CONNECT:{}:{}", to.cid(), to.port()))
        .stdin(Stdio::null())
        .spawn()
        .context("cannot run socat")?;
    let helper = Helper::Socat(child);
    let deadline = Instant::now() + LIMIT;
    // It makes its socket first when it listens, and connects first when it receives.
    while !FilePath::new(path).exists() {
        ensure!(Instant::now() < deadline, "socat makes no socket");
        thread::sleep(Duration::from_millis(1));
    }
    let sotype = match kind {
        Kind::UnixDgram => SockType::Datagram,
        _ => SockType::Stream,
    };
    let writer = open(AddressFamily::Unix, sotype)?;
    if kind == Kind::UnixDgram {
        setsockopt(&writer, sockopt::SndBufForce, &(1 << 20))?;
    }
    while let Err(error) = connect(writer.as_raw_fd(), &UnixAddr::new(path)?) {
        ensure!(Instant::now() < deadline, "socat does not listen: {error}");
        thread::sleep(Duration::from_millis(1));
    }
    give_up_after(&writer, LIMIT)?;
    let reader = match waiting {
        End::Here(listener) => {
            give_up_after(&listener, LIMIT)?;
            let reader =
                accept4(&listener, SockFlag::SOCK_CLOEXEC).context("socat does not connect")?;
            give_up_after(&reader, LIMIT)?;
            End::Here(reader)
        }
        there => there,
    };
    Ok(Lane {
        writer: End::Here(writer),
        source: None,
        sink: None,
        reader,
        _helper: helper,
    })
}

/// What a measurement is of.
#[derive(Clone, Copy)]
struct Way {
    path: Path,
    arm: Arm,
    peer: Option<Peer>,
}

fn lane(Way { path, arm, peer }: Way) -> Result<Lane> {
    let (from, to) = path.kinds();
    if arm == Arm::Socat {
        return socat(from, peer);
    }
    if arm == Arm::Direct {
        let (near, far) = pair(Kind::Vsock, peer)?;
        let (writer, reader) = if to == Kind::Vsock {
            (End::Here(near), far)
        } else {
            (far, End::Here(near))
        };
        return Ok(Lane {
            writer,
            source: None,
            sink: None,
            reader,
            _helper: Helper::None,
        });
    }
    let (sink, reader) = pair(to, peer)?;
    let (source, writer) = pair(from, peer)?;
    let helper = if arm == Arm::Sockmap {
        let (there, back) = (Map::new(1)?, Map::new(1)?);
        let program = Program::redirect(&there, KEY as u32)?;
        back.attach(&program)?;
        // The sink first: a packet that finds none is dropped.
        let there = splice(there, &sink, &back)?;
        back.insert(KEY, source.as_fd())?;
        Helper::Sockmap([there, (back, program)])
    } else {
        Helper::None
    };
    Ok(Lane {
        writer,
        source: Some(source),
        sink: Some(sink),
        reader,
        _helper: helper,
    })
}

/// Copies until the time is up, or an end of the socket.
fn copy(from: &OwnedFd, to: &OwnedFd) -> Result<[u64; 2]> {
    let mut buffer = vec![0; 2 * BUFFER];
    loop {
        let count = receive(from, &mut buffer)?;
        if count == 0 || !send_all(to, &buffer[..count])? {
            return Ok([0, 0]);
        }
    }
}

/// The time that the processors were busy, in milliseconds.
fn busy() -> Result<u64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let mut fields = stat
        .lines()
        .next()
        .context("/proc/stat")?
        .split_whitespace();
    fields.next();
    let fields: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    let ticks: u64 = [0, 1, 2, 5, 6].iter().filter_map(|i| fields.get(*i)).sum();
    // USER_HZ is 100.
    Ok(ticks * 10)
}

struct Measured {
    bytes: usize,
    seconds: f64,
    busy: u64,
}

impl Measured {
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }
}

/// Sends `bytes` bytes on each of some lanes, and waits until they have arrived.
fn throughput(way: Way, size: usize, bytes: usize, connections: usize) -> Result<Measured> {
    let lanes = (0..connections)
        .map(|_| lane(way))
        .collect::<Result<Vec<_>>>()?;
    run_lanes(&lanes, way, size, bytes)
}

fn run_lanes(lanes: &[Lane], way: Way, size: usize, bytes: usize) -> Result<Measured> {
    let Way { path, arm, .. } = way;
    let lossy = path.kinds().0 == Kind::Udp && arm != Arm::Direct;
    if lossy {
        for lane in lanes {
            lane.reader.read_limit(TimeVal::new(0, IDLE))?;
        }
    }
    let epoch = Instant::now();
    let crew = Crew::new()?;
    let mut copies = Vec::new();
    let mut writers = Vec::new();
    let mut drains = Vec::new();
    for lane in lanes {
        if let (Arm::Copy, Some(from), Some(to)) = (arm, &lane.source, &lane.sink) {
            copies.push(crew.add(|| copy(from, to))?);
        }
        writers.push(crew.add(|| {
            lane.writer.write(bytes, size, Instant::now() + LIMIT)?;
            Ok([0, 0])
        })?);
        drains.push(crew.add(|| {
            let (had, last) = lane.reader.drain(bytes, Instant::now() + LIMIT)?;
            Ok([had as u64, (last - epoch).as_nanos() as u64])
        })?);
    }
    let busy_before = busy()?;
    let start = Instant::now();
    crew.begin();
    let mut arrived = 0;
    let mut last = start;
    for drain in drains {
        let [had, at] = drain.join()?;
        arrived += had as usize;
        last = last.max(epoch + Duration::from_nanos(at));
    }
    let busy = busy()? - busy_before;
    let complete = arrived == bytes * lanes.len();
    let seconds = if complete || lossy {
        last - start
    } else {
        start.elapsed()
    };
    if complete {
        for writer in writers {
            writer.join()?;
        }
    }
    Ok(Measured {
        bytes: arrived,
        seconds: seconds.as_secs_f64().max(1e-6),
        busy,
    })
}

/// The packets of a lane, for each MiB.
struct Packets {
    /// With data, to the reader, if that is a vsock.
    data: Option<f64>,
    /// Credit updates of the source, if that is a vsock, and ours.
    updates: Option<f64>,
}

/// Counts the packets of what `throughput` sends.
fn packets(way: Way, size: usize, monitor: &Monitor) -> Result<Packets> {
    let bytes = PACKETS_OF.next_multiple_of(size);
    let lanes = [lane(way)?];
    let [lane] = &lanes;
    let (from, to) = way.path.kinds();
    let reader = (to == Kind::Vsock)
        .then(|| lane.reader.port())
        .transpose()?;
    let source = match &lane.source {
        Some(source) if from == Kind::Vsock => Some(vsock_port(source)?),
        _ => None,
    };
    let capture = monitor.start()?;
    let arrived = run_lanes(&lanes, way, size, bytes)?.bytes;
    let packets = capture.finish()?;
    let of = |port: Option<u32>, is: &dyn Fn(&Packet, u32) -> bool| {
        let port = port.filter(|_| arrived > 0)?;
        let count = packets.iter().filter(|packet| is(packet, port)).count();
        Some(count as f64 / (arrived as f64 / f64::from(1 << 20)))
    };
    Ok(Packets {
        data: of(reader, &|packet, port| {
            packet.is_data() && packet.dst_port == port
        }),
        updates: of(source, &|packet, port| {
            packet.is_credit_update() && packet.src_port == port
        }),
    })
}

/// Round trips of 64 bytes, in microseconds, sorted.
fn round_trips(way: Way, trips: usize) -> Result<Vec<f64>> {
    const SIZE: usize = 64;
    let lane = lane(way)?;
    let (near, echo) = match (&lane.writer, &lane.reader) {
        (End::Here(near), echo) | (echo, End::Here(near)) => (near, echo),
        (End::There(_), End::There(_)) => bail!("nobody here waits for the answer"),
    };
    let crew = Crew::new()?;
    let mut helpers = vec![crew.add(|| echo.echo().map(|()| [0, 0]))?];
    if let (Arm::Copy, Some(source), Some(sink)) = (way.arm, &lane.source, &lane.sink) {
        helpers.push(crew.add(|| copy(source, sink))?);
        helpers.push(crew.add(|| copy(sink, source))?);
    }
    crew.begin();
    let mut times = Vec::new();
    let mut buffer = [0x5a; SIZE];
    for _ in 0..trips {
        let start = Instant::now();
        ensure!(send_all(near, &buffer)?, "time limit");
        ensure!(receive_all(near, &mut buffer)?, "no answer");
        times.push(start.elapsed().as_secs_f64() * 1e6);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The memory of the kernel that grows with sockets and maps, in KiB.
fn kernel_memory() -> Result<f64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let of = |name: &str| -> Option<f64> {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let parts = ["Slab:", "VmallocUsed:", "Percpu:"].map(of);
    parts
        .into_iter()
        .sum::<Option<f64>>()
        .context("/proc/meminfo")
}

/// Tells what the kernel keeps for two spliced sockets and their peers, with maps and programs.
///
/// All are kept to the end, as what they leave behind would be used again.
fn idle_memory(args: &Args) -> Result<()> {
    let files = (16 * (IDLE_LANES + 1) * args.paths.len()).max(1 << 12);
    setrlimit(Resource::RLIMIT_NOFILE, files as u64, files as u64).context("limit of files")?;
    let mut kept = Vec::new();
    for &path in &args.paths {
        for way in ways(args, path)
            .into_iter()
            .filter(|way| way.arm == Arm::Sockmap)
        {
            let name = path_name(path)?;
            // What is made only once is made by the first.
            kept.push(lane(way).with_context(|| way.named(&name))?);
            let before = kernel_memory()?;
            for _ in 0..IDLE_LANES {
                kept.push(lane(way).with_context(|| way.named(&name))?);
            }
            print(json!({
                "path": name,
                "arm": way.arm_name(),
                "round": 0,
                "idle_kib": (kernel_memory()? - before) / IDLE_LANES as f64,
            }))?;
        }
    }
    Ok(())
}

fn path_name(path: Path) -> Result<String> {
    let name = path.to_possible_value().context("name")?;
    Ok(name.get_name().to_string())
}

/// How many bytes a measurement moves: what the copy moves in the given time.
fn calibrate(way: Way, size: usize, connections: usize, time: Duration) -> Result<usize> {
    let copy = Way {
        arm: Arm::Copy,
        ..way
    };
    let few = (size * 16).max(1 << 16);
    throughput(copy, size, few, connections)?;
    let rate = throughput(copy, size, 4 * few, connections)?.rate();
    let bytes = (rate * time.as_secs_f64()) as usize / connections;
    Ok(bytes.clamp(few, 256 << 20) / size * size)
}

impl Way {
    /// As it is called in the results, for errors.
    fn named(self, name: &str) -> String {
        format!("{name}, {}", self.arm_name())
    }

    fn arm_name(self) -> String {
        format!("{:?}", self.arm).to_lowercase()
    }

    fn has_round_trips(self) -> bool {
        let (from, to) = self.path.kinds();
        // Nothing sends a lost datagram again, and somebody here has to wait for the answer.
        from != Kind::Udp && !(self.peer.is_some() && from == Kind::Vsock && to == Kind::Vsock)
    }
}

fn ways(args: &Args, path: Path) -> Vec<Way> {
    let from = path.kinds().0;
    let runs = |arm: &Arm| *arm != Arm::Socat || matches!(from, Kind::UnixDgram | Kind::UnixStream);
    let way = |arm| Way {
        path,
        arm,
        peer: args.peer,
    };
    args.arms.iter().copied().filter(runs).map(way).collect()
}

pub fn run(args: &Args) -> Result<bool> {
    idle_memory(args)?;
    for &path in &args.paths {
        let name = path_name(path)?;
        let ways = ways(args, path);
        let Some(&first) = ways.first() else {
            continue;
        };
        for &connections in &args.connections {
            // There is one path for the UNIX socket of socat.
            let all = ways.iter().copied();
            let ways = || {
                all.clone()
                    .filter(|way| way.arm != Arm::Socat || connections == 1)
            };
            for &size in args.sizes.iter().filter(|size| path.takes(**size)) {
                let time = Duration::from_millis(args.time);
                let bytes = calibrate(first, size, connections, time)?;
                for round in 0..args.rounds {
                    for way in ways() {
                        let measured = throughput(way, size, bytes, connections)
                            .with_context(|| way.named(&format!("{name}, {size} bytes")))?;
                        print(json!({
                            "path": name,
                            "size": size,
                            "connections": connections,
                            "arm": way.arm_name(),
                            "round": round,
                            "bytes": measured.bytes,
                            "of": bytes * connections,
                            "mb_s": measured.rate() / 1e6,
                            "cpu_ms_mib": measured.busy as f64
                                / (measured.bytes as f64 / f64::from(1 << 20)),
                        }))?;
                    }
                }
                let Some(monitor) = args.monitor.as_deref().filter(|_| connections == 1) else {
                    continue;
                };
                for way in ways() {
                    let packets = packets(way, size, &Monitor::new(monitor))
                        .with_context(|| way.named(&format!("{name}, {size} bytes, packets")))?;
                    print(json!({
                        "path": name,
                        "size": size,
                        "connections": connections,
                        "arm": way.arm_name(),
                        "round": 0,
                        "packets_mib": packets.data,
                        "updates_mib": packets.updates,
                    }))?;
                }
            }
        }
        if args.trips == 0 || !first.has_round_trips() {
            continue;
        }
        for round in 0..args.rounds {
            for way in ways.iter().filter(|way| way.arm != Arm::Socat) {
                let times = round_trips(*way, args.trips)
                    .with_context(|| way.named(&format!("{name}, round trips")))?;
                print(json!({
                    "path": name,
                    "arm": way.arm_name(),
                    "round": round,
                    "p50_us": times[times.len() / 2],
                    "p99_us": times[times.len() * 99 / 100],
                }))?;
            }
        }
    }
    Ok(true)
}
