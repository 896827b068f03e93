# SPDX-License-Identifier: GPL-2.0
#
# Makes the tables of names for __print_symbolic() in rds_trace.h, from the enums of Rust whose
# numbers the tracepoints record: the states and events in proto/connect.rs, and the counters in
# stats/mod.rs.

/^pub\(crate\) enum (State|Event) \{/ { enum = $3; next }
/^counters! \{/ { enum = "Counter"; next }
/^\}/ { enum = "" }

# A variant of an enum, in the order of its numbers.
enum != "" && match($0, /^    [A-Z][A-Za-z0-9]*,$/) {
	variants[enum, count[enum]++] = substr($0, 5, RLENGTH - 5)
}

# The name of a variant, in name().
match($0, /^            (State|Event)::[A-Za-z0-9]+ => "[^"]*",$/) {
	split($1, path, "::")
	names[path[1], path[2]] = text()
}

# A counter has its name beside it.
enum == "Counter" && /^    [A-Z][A-Za-z0-9]* => "[^"]*",$/ {
	variants[enum, count[enum] + 0] = $1
	names[enum, $1] = text()
	count[enum]++
}

function text() {
	match($0, /"[^"]*"/)
	return substr($0, RSTART, RLENGTH)
}

function table(enum, macro,    i) {
	printf "#define %s", macro
	for (i = 0; i < count[enum]; i++)
		printf "%s \\\n\t{ %d, %s }", i ? "," : "", i, names[enum, variants[enum, i]]
	print "\n"
}

END {
	print "/* SPDX-License-Identifier: GPL-2.0 */"
	print "/* Made by trace_names.awk. */"
	table("State", "RDS_TRACE_STATES")
	table("Event", "RDS_TRACE_EVENTS")
	table("Counter", "RDS_TRACE_COUNTERS")
}
