// SPDX-License-Identifier: GPL-2.0
//! Command lines, valid and invalid.

use clap::parser::ValueSource;
use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<Args, clap::Error> {
    Args::try_parse_from(line.split_whitespace())
}

#[test]
fn definition_is_consistent() {
    Args::command().debug_assert();
}

#[test]
fn options_of_the_established_tool() {
    let line = "rds-stress -s 10.0.0.2 -r 10.0.0.1 -p 5000 -q 4K -a 100 -t 3 -d 8 -T 10 -Q 4 \
                -o -c -v -z -R -V --show-params --connect-retries 5";
    let args = parse(line).unwrap();
    assert_eq!(
        args.passive().unwrap(),
        Some("10.0.0.2:5000".parse().unwrap())
    );
    assert_eq!(args.local().unwrap(), Some("10.0.0.1:0".parse().unwrap()));
    assert_eq!((args.seconds(), args.connect_retries), (Some(10), 5));
    assert!(args.own().report_cpu && args.show_params());
    let wanted = Options {
        req_bytes: 4096,
        ack_bytes: 100,
        one_way: true,
        depth: 8,
        tasks: 3,
        tos: Some(4),
        verify: true,
        summary_only: true,
        rtprio: true,
        trace: true,
        perfdata: false,
        monitor: true,
        timeout: 60,
        rdma: Rdma {
            buffers: 1,
            use_once: true,
            ..Rdma::default()
        },
    };
    assert_eq!(args.options().unwrap(), wanted);
}

#[test]
fn defaults() {
    let args = parse("rds-stress").unwrap();
    assert_eq!(args.passive().unwrap(), None);
    assert_eq!((args.port, args.seconds()), (4000, None));
    let options = args.options().unwrap();
    assert_eq!(
        (options.req_bytes, options.ack_bytes),
        (1024, HEADER as u32)
    );
    assert_eq!((options.depth, options.tasks), (1, 1));
    assert!(options.verify && !options.one_way);
    assert!(options.monitor && !options.perfdata && !args.reset);
    assert_eq!(args.own(), Own::default());
}

/// A script may have options of its own before those that it is given.
#[test]
fn the_last_one_counts() {
    let args = parse("rds-stress -d 2 -v -s 10.0.0.1 -d 5 -v --use-cong-monitor 0 --use-cong-monitor 1 -s 10.0.0.2").unwrap();
    let options = args.options().unwrap();
    assert_eq!((options.depth, options.monitor), (5, true));
    assert_eq!(args.send_addr.as_deref(), Some("10.0.0.2"));
}

#[test]
fn options_are_sent_to_the_end_that_needs_them() {
    let line = "rds-stress --show-histogram --show-outliers 1K --cancel-sent-to --abort-after 3 --disable-inq -c \
                --latencies";
    let wanted = Own {
        report_cpu: true,
        histogram: true,
        latencies: true,
        outliers: Some(1024),
        cancel_sent_to: true,
        abort_after: Some(3),
    };
    assert_eq!(parse(line).unwrap().own(), wanted);
    // These options are without effect.
    let line = "rds-stress --abort-after 0 --disable-inq";
    assert_eq!(parse(line).unwrap().own(), Own::default());
    for line in [
        "--show-outliers",
        "--show-outliers x",
        "--abort-after -1",
        "--show-histogram=1",
        "--disable-inq 0",
    ] {
        assert!(parse(&format!("rds-stress {line}")).is_err(), "{line}");
    }
}

#[test]
fn perfdata_and_congestion_are_for_both_ends() {
    let options = |line: &str| {
        let args = parse(&format!("rds-stress -s 10.0.0.2 {line}")).unwrap();
        args.options().unwrap()
    };
    assert!(options("--show-perfdata").perfdata);
    assert!(options("--use-cong-monitor 1").monitor);
    assert!(!options("--use-cong-monitor=0").monitor);
    for line in [
        "--use-cong-monitor",
        "--use-cong-monitor 2",
        "--show-perfdata=1",
    ] {
        assert!(parse(&format!("rds-stress {line}")).is_err(), "{line}");
    }
}

#[test]
fn a_reset_is_of_a_connection() {
    let args = parse("rds-stress --reset -s 10.0.0.2 -Q 4").unwrap();
    assert!(args.reset && args.options().unwrap().tos == Some(4));
    assert!(parse("rds-stress --reset").is_err());
}

/// The long options of Oracle's tool, with a value for those that take one.
const ESTABLISHED: [(&str, &str); 36] = [
    ("req-bytes", "1K"),
    ("ack-bytes", "1K"),
    ("rdma-bytes", "1K"),
    ("rdma-buffers", "1"),
    ("rdma-mode", "1"),
    ("tasks", "1"),
    ("depth", "1"),
    ("recv-addr", "1"),
    ("send-addr", "1"),
    ("port", "1"),
    ("time", "1"),
    ("tos", "1"),
    ("report-cpu", ""),
    ("report-summary", ""),
    ("rtprio", ""),
    ("verify", ""),
    ("trace", ""),
    ("one-way", ""),
    ("rdma-use-once", "1"),
    ("rdma-use-get-mr", "1"),
    ("rdma-use-fence", "1"),
    ("rdma-use-notify", "1"),
    ("rdma-cache-mrs", "1"),
    ("rdma-alignment", "1"),
    ("rdma-key-o-meter", ""),
    ("show-params", ""),
    ("show-perfdata", ""),
    ("connect-retries", "1"),
    ("use-cong-monitor", "1"),
    ("show-outliers", "1"),
    ("show-histogram", ""),
    ("reset", ""),
    ("async", ""),
    ("cancel-sent-to", ""),
    ("abort-after", "1"),
    ("disable-inq", ""),
];

/// getopt_long() accepts unambiguous abbreviations, and so scripts may contain them.
#[test]
fn long_options_may_be_cut() {
    for (name, value) in ESTABLISHED {
        for len in 1..=name.len() {
            let cut = &name[..len];
            let same = ESTABLISHED.iter().filter(|(x, _)| x.starts_with(cut));
            if same.count() > 1 {
                continue;
            }
            let mut line = vec!["rds-stress".to_owned(), format!("--{cut}")];
            line.extend((!value.is_empty()).then(|| value.to_owned()));
            if name != "send-addr" {
                line.extend(["-s", "10.0.0.2"].map(str::to_owned));
            }
            let matches = Args::command().try_get_matches_from(&line);
            let source = matches.map(|x| x.value_source(&name.replace('-', "_")));
            assert_eq!(source.unwrap(), Some(ValueSource::CommandLine), "{line:?}");
        }
    }
    for unclear in ["--r", "--s 1", "--show", "--rdma-use 1", "--t 1", "--a 5"] {
        let line = format!("rds-stress {unclear}");
        assert!(parse(&line).is_err(), "{line}");
    }
}

fn rdma(line: &str) -> Rdma {
    let args = parse(&format!("rds-stress -s 10.0.0.2 {line}")).unwrap();
    args.options().unwrap().rdma
}

#[test]
fn rdma_options_of_the_established_tool() {
    let defaults = rdma("");
    assert!(!defaults.is_on());
    let on = rdma("-D 64K");
    let wanted = Rdma {
        bytes: 65536,
        ..defaults
    };
    assert_eq!(on, wanted);
    assert!(on.is_on() && on.use_once && !on.use_get_mr);
    let all = rdma(
        "--rdma-bytes 1000 --rdma-buffers 4 --rdma-mode 2 --rdma-use-once 0 --rdma-use-get-mr 1 \
         --rdma-cache-mrs 1 --rdma-alignment 24 --rdma-use-fence 1 --rdma-use-notify 0 --atomics",
    );
    let wanted = Rdma {
        bytes: 1000,
        buffers: 4,
        mode: Mode::WriteOnly,
        atomics: true,
        use_once: false,
        use_get_mr: true,
        cache_mrs: true,
        alignment: 24,
    };
    assert_eq!(all, wanted);
    assert_eq!(rdma("-D 2K -I 512 -M 1").mode, Mode::ReadOnly);
    assert!(rdma("--atomics").is_on());
    let cached = rdma("-D 4K --rdma-cache-mrs 1");
    assert!(!cached.use_once && cached.use_get_mr);
}

#[test]
fn impossible_rdma_options_are_refused_in_words() {
    for (options, words) in [
        ("-D 4K --rdma-use-fence 0", "verified"),
        ("-D 4K --rdma-key-o-meter", "does not count"),
        ("-D 4K -I 257", "1048576 bytes"),
        ("-D 2M", "1048576 bytes"),
        ("-D 1 -I 513", "512 buffers"),
        ("-I 0", "512 buffers"),
        ("--async", "RDS_CMSG_ASYNC_SEND"),
        ("-D 1 --rdma-alignment 4096", "less than 4096"),
        ("--atomics --rdma-alignment 4", "multiple of 8"),
        (
            "--rdma-cache-mrs 1 --rdma-use-once 1",
            "cannot be used again",
        ),
        ("--rdma-cache-mrs 1 --rdma-use-get-mr 0", "for that message"),
    ] {
        let args = parse(&format!("rds-stress -s 10.0.0.2 {options}")).unwrap();
        let error = args.options().unwrap_err().to_string();
        assert!(error.contains(words), "{options}: {error}");
    }
    for line in [
        "-M 3",
        "-D 4X",
        "-I -1",
        "--rdma-use-once 2",
        "--rdma-cache-mrs yes",
    ] {
        assert!(parse(&format!("rds-stress {line}")).is_err(), "{line}");
    }
}

#[test]
fn sizes() {
    assert_eq!(size("1024"), Ok(1024));
    assert_eq!(size("1K"), Ok(1024));
    assert_eq!(size("1m"), Ok(1 << 20));
    for bad in ["", "K", "-1", "1.5K", "4G", "1X", "1KK", "é"] {
        assert!(size(bad).is_err(), "{bad}");
    }
}

#[test]
fn nonsense_is_refused() {
    for line in [
        "rds-stress -q",
        "rds-stress -x",
        "rds-stress -p 0",
        "rds-stress -Q 256",
        "rds-stress -v --no-verify",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    for line in [
        "rds-stress -q 31",
        "rds-stress -q 2M",
        "rds-stress -t 0",
        "rds-stress -d 0",
    ] {
        assert!(parse(line).unwrap().options().is_err(), "{line}");
    }
    let args = parse("rds-stress -r 10.0.0.1 -s fd00::2").unwrap();
    assert!(args.passive().unwrap_err().to_string().contains("family"));
}
