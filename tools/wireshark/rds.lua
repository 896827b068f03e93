-- SPDX-License-Identifier: GPL-2.0
-- Wireshark dissector for Reliable Datagram Sockets (AF_RDS).
--
-- It shows RDS over InfiniBand, RoCE, iWARP and TCP: headers, extensions, congestion maps, and the
-- private data of the connection manager. Documentation/protocol.md describes the format. A frame
-- that breaks a rule gets an expert information; nothing in a packet can cause an error in Lua.
-- The filter name is "af_rds", because "rds" is the Reliable Data Service of 3GPP.

local HEADER = 48
local MAX_MESSAGE = 1048576
local MAP = 8192
local ALIGN = 8
-- Longest packed frame behind the header of its first message.
local MAX_PACKED = 4096
local FRAGMENTS = { [4096] = true, [8192] = true, [16384] = true }
local LONGEST_FRAME = HEADER + 16384
local PORT_V4, PORT_V6 = 18634, 16385
-- Prefix of the service IDs of the RDMA CM in its TCP port space.
local SERVICE = 0x01060000
-- Number of congested ports that are listed; their total is always shown.
local MOST_PORTS = 256

local CONG, ACK_REQUIRED, RETRANSMITTED, HB_PING, HB_PONG, EXTENSION = 1, 2, 4, 8, 16, 32

local rds = Proto("af_rds", "Reliable Datagram Sockets")
local cm = Proto("af_rds_cm", "Reliable Datagram Sockets, connection setup")

local f = {
    seq = ProtoField.uint64("af_rds.seq", "Sequence"),
    ack = ProtoField.uint64("af_rds.ack", "Acknowledgement"),
    len = ProtoField.uint32("af_rds.len", "Length of the message"),
    sport = ProtoField.uint16("af_rds.sport", "Source port"),
    dport = ProtoField.uint16("af_rds.dport", "Destination port"),
    port = ProtoField.uint16("af_rds.port", "Port"),
    flags = ProtoField.uint8("af_rds.flags", "Flags", base.HEX),
    cong = ProtoField.bool("af_rds.flags.cong", "Congestion update", 8, nil, CONG),
    ackreq = ProtoField.bool("af_rds.flags.ack_required", "Acknowledgement required", 8, nil, ACK_REQUIRED),
    retrans = ProtoField.bool("af_rds.flags.retransmitted", "Retransmitted", 8, nil, RETRANSMITTED),
    hb_ping = ProtoField.bool("af_rds.flags.hb_ping", "Heartbeat", 8, nil, HB_PING),
    hb_pong = ProtoField.bool("af_rds.flags.hb_pong", "Heartbeat answer", 8, nil, HB_PONG),
    ext_flag = ProtoField.bool("af_rds.flags.extension", "RDMA extension", 8, nil, EXTENSION),
    credit = ProtoField.uint8("af_rds.credit", "Credits"),
    padding = ProtoField.bytes("af_rds.padding", "Padding"),
    checksum = ProtoField.uint16("af_rds.checksum", "Checksum", base.HEX),
    kind = ProtoField.string("af_rds.kind", "Kind"),
    payload = ProtoField.bytes("af_rds.payload", "Payload"),
    offset = ProtoField.uint32("af_rds.fragment.offset", "Fragment offset"),
    first = ProtoField.framenum("af_rds.reassembled.first", "Reassembled from packets, first"),
    count = ProtoField.uint32("af_rds.reassembled.count", "Reassembled from packets, number"),
    part = ProtoField.bytes("af_rds.part", "Part of a frame"),
    map = ProtoField.bytes("af_rds.map", "Congestion map"),
    map_port = ProtoField.uint16("af_rds.map.port", "Congested port"),
    map_count = ProtoField.uint32("af_rds.map.count", "Congested ports"),
    ext = ProtoField.uint8("af_rds.ext", "Extension", base.DEC, {
        [0] = "none", [1] = "version", [2] = "RDMA operation", [3] = "RDMA destination", [4] = "RDMA bytes",
        [5] = "number of paths", [6] = "generation", [7] = "capabilities", [8] = "path by source port",
        [9] = "payload checksum" }),
    ext_version = ProtoField.uint32("af_rds.ext.version", "Version", base.HEX),
    ext_rkey = ProtoField.uint32("af_rds.ext.rkey", "Remote key", base.HEX),
    ext_offset = ProtoField.uint32("af_rds.ext.offset", "Offset", base.HEX),
    ext_bytes = ProtoField.uint32("af_rds.ext.bytes", "Bytes"),
    ext_direction = ProtoField.uint8("af_rds.ext.direction", "Operation", base.DEC, { [1] = "write", [2] = "read" }),
    ext_paths = ProtoField.uint16("af_rds.ext.paths", "Paths"),
    ext_generation = ProtoField.uint32("af_rds.ext.generation", "Generation", base.HEX),
    ext_capabilities = ProtoField.uint32("af_rds.ext.capabilities", "Capabilities", base.HEX),
    ext_packed = ProtoField.bool("af_rds.ext.capabilities.packed", "Packed frames", 32, nil, 0x80000000),
    ext_tcp_ack = ProtoField.bool("af_rds.ext.capabilities.tcp_ack", "Acknowledgements over TCP", 32, nil, 0x40000000),
    ext_heartbeat = ProtoField.bool("af_rds.ext.capabilities.heartbeat", "Heartbeat", 32, nil, 1),
    ext_sport = ProtoField.uint8("af_rds.ext.sport_idx", "Value"),
    ext_crc = ProtoField.uint32("af_rds.ext.crc", "CRC", base.HEX),
    ext_crc_used = ProtoField.uint8("af_rds.ext.crc.enabled", "In use"),
}
rds.fields = f

local c = {
    saddr4 = ProtoField.ipv4("af_rds_cm.saddr", "Address of the sender"),
    daddr4 = ProtoField.ipv4("af_rds_cm.daddr", "Address of the receiver"),
    saddr6 = ProtoField.ipv6("af_rds_cm.saddr6", "Address of the sender"),
    daddr6 = ProtoField.ipv6("af_rds_cm.daddr6", "Address of the receiver"),
    major = ProtoField.uint8("af_rds_cm.major", "Major version"),
    minor = ProtoField.uint8("af_rds_cm.minor", "Minor version"),
    mask = ProtoField.uint16("af_rds_cm.minor_mask", "Mask of minor versions", base.HEX),
    tos = ProtoField.uint8("af_rds_cm.tos", "Type of service"),
    reserved = ProtoField.uint8("af_rds_cm.reserved", "Reserved"),
    frag = ProtoField.uint16("af_rds_cm.fragment_size", "Fragment size"),
    ack = ProtoField.uint64("af_rds_cm.ack", "Acknowledged sequence"),
    credit = ProtoField.uint32("af_rds_cm.credit", "Credits"),
    padding = ProtoField.bytes("af_rds_cm.padding", "Padding"),
    reject = ProtoField.bytes("af_rds_cm.reject", "Data of the rejection"),
    why = ProtoField.string("af_rds_cm.reject.reason", "Reason"),
}
cm.fields = c

local PROTOCOL, MALFORMED, CHECKSUM = expert.group.PROTOCOL, expert.group.MALFORMED, expert.group.CHECKSUM
local e = {
    short = ProtoExpert.new("af_rds.short", "Too short for a header", MALFORMED, expert.severity.ERROR),
    long = ProtoExpert.new("af_rds.long", "The message is too long", MALFORMED, expert.severity.ERROR),
    map_len = ProtoExpert.new("af_rds.map_length", "A congestion map has 8192 bytes", MALFORMED, expert.severity.ERROR),
    fragment = ProtoExpert.new("af_rds.bad_fragment", "The length does not fit the message", MALFORMED,
        expert.severity.ERROR),
    sum = ProtoExpert.new("af_rds.bad_checksum", "The checksum is wrong", CHECKSUM, expert.severity.ERROR),
    flags = ProtoExpert.new("af_rds.unknown_flags", "Unknown flags", PROTOCOL, expert.severity.WARN),
    ext = ProtoExpert.new("af_rds.bad_extension", "Unreadable extension", PROTOCOL, expert.severity.WARN),
    lost = ProtoExpert.new("af_rds.incomplete", "Parts of the frame are not in the capture",
        expert.group.REASSEMBLE, expert.severity.WARN),
    cut = ProtoExpert.new("af_rds.cut", "The capture has only the beginning of the packet", expert.group.UNDECODED,
        expert.severity.WARN),
}
rds.experts = e
local ce = {
    short = ProtoExpert.new("af_rds_cm.short", "Too short for private data of RDS", MALFORMED, expert.severity.ERROR),
    version = ProtoExpert.new("af_rds_cm.version", "A version that no RDS has", PROTOCOL, expert.severity.WARN),
}
cm.experts = ce

local opcode = Field.new("infiniband.bth.opcode")
local destqp = Field.new("infiniband.bth.destqp")
local psn = Field.new("infiniband.bth.psn")
local pad_count = Field.new("infiniband.bth.padcnt")
local service_id = Field.new("infiniband.cm.req.serviceid")
local req_id, req_qp = Field.new("infiniband.cm.req"), Field.new("infiniband.cm.req.localqpn")
local rep_id, rep_qp = Field.new("infiniband.cm.rep.remotecommid"), Field.new("infiniband.cm.rep.localqpn")
local rej_id = Field.new("infiniband.cm.rej.remotecommid")
local mpa_private = Field.new("iwarp_mpa.privatedata")
local mpa_reply = Field.new("iwarp_mpa.key.rep")
local tcp_stream = Field.new("tcp.stream")

-- State from earlier packets. Each packet is dissected again when it is displayed, so results are
-- kept by the number of the packet.
local known, requests, answers, assembly, assembled, progress, offsets, iwarp

local function reset()
    -- Flows (below) that carry RDS.
    known = {}
    -- {number of a request of the CM: port}, {packet of an answer: port of the request}.
    requests, answers = {}, {}
    -- {flow: packets of a frame that is not complete}, {packet: the frame that it completes}.
    assembly, assembled = {}, {}
    -- {flow: a message that is not complete}, {packet: offset of its fragment}.
    progress, offsets = {}, {}
    -- {number of a TCP stream: true if it carries iWARP}.
    iwarp = {}
end
rds.init = reset
reset()

local function first_of(field)
    local info = field()
    return info and info.value
end

local function number_of(field)
    return tonumber(tostring(first_of(field) or ""))
end

-- has: returns whether a flag is set. Lua before 5.3 has no operator for that.
local function has(flags, flag)
    return math.floor(flags / flag) % 2 == 1
end

-- sum_of: returns the one's complement sum of a header.
local function sum_of(tvb)
    local sum = 0
    for at = 0, HEADER - 2, 2 do
        sum = sum + tvb(at, 2):uint()
    end
    while sum > 0xffff do
        sum = sum % 0x10000 + math.floor(sum / 0x10000)
    end
    return sum
end

local function right_sum(tvb)
    return sum_of(tvb) == 0xffff
end

-- plausible: returns whether bytes look like a header. C RDS also accepts 0 for "no checksum".
local function plausible(tvb)
    if tvb:len() < HEADER then
        return false
    end
    local sum = tvb(30, 2):uint()
    return (right_sum(tvb) or sum == 0 and tvb(26, 4):uint() == 0 and tvb(24, 1):uint() < 0x40
            and tvb(0, HEADER):bytes() ~= ByteArray.new(("00"):rep(HEADER)))
        and tvb(16, 4):uint() <= MAX_MESSAGE
end

-- kind_of: returns the kind of a frame, from its header.
local function kind_of(h)
    if h.flags == CONG and h.len == 0 then
        -- Over TCP, between nodes that acknowledge there. C RDS ignores it.
        return "Acknowledgement"
    elseif has(h.flags, CONG) then
        return "Congestion update"
    elseif h.none and h.len == 0 and h.sport == 0 and h.dport == 0 then
        return "Acknowledgement"
    elseif has(h.flags, HB_PING) or has(h.flags, HB_PONG) then
        return has(h.flags, HB_PING) and "Heartbeat" or "Heartbeat answer"
    elseif h.sport == 0 and h.dport == 0 then
        return "Keepalive"
    elseif h.sport == 1 and h.dport == 0 or h.sport == 0 and h.dport == 1 then
        return h.dport == 0 and "Multipath probe" or "Multipath answer"
    elseif h.dport == 0 then
        return "Ping"
    elseif h.sport == 0 then
        return "Pong"
    end
    return "Message"
end

local function header_of(tvb)
    local h = {
        seq = tvb(0, 8):uint64(), len = tvb(16, 4):uint(), sport = tvb(20, 2):uint(), dport = tvb(22, 2):uint(),
        flags = tvb(24, 1):uint(),
    }
    h.none = h.seq == UInt64(0)
    h.kind = kind_of(h)
    return h
end

-- Types of extensions: the bytes of their data, and how to show them.
local EXTENSIONS = {
    [1] = { 4, { { f.ext_version, 0, 4 } } },
    [2] = { 4, { { f.ext_rkey, 0, 4 } } },
    [3] = { 8, { { f.ext_rkey, 0, 4 }, { f.ext_offset, 4, 4 } } },
    [4] = { 8, { { f.ext_bytes, 0, 4 }, { f.ext_direction, 4, 1 } } },
    [5] = { 2, { { f.ext_paths, 0, 2 } } },
    [6] = { 4, { { f.ext_generation, 0, 4 } } },
    [7] = { 4, { { f.ext_capabilities, 0, 4 }, { f.ext_packed, 0, 4 }, { f.ext_tcp_ack, 0, 4 },
        { f.ext_heartbeat, 0, 4 } } },
    [8] = { 1, { { f.ext_sport, 0, 1 } } },
    [9] = { 8, { { f.ext_crc, 0, 4 }, { f.ext_crc_used, 4, 1 } } },
}

local function extensions(tvb, tree)
    local at, last = 32, HEADER
    while at < last do
        local kind = tvb(at, 1):uint()
        if kind == 0 then
            return
        end
        local known_type = EXTENSIONS[kind]
        if not known_type or at + 1 + known_type[1] > last then
            local item = tree:add(f.ext, tvb(at, 1))
            item:add_proto_expert_info(e.ext, known_type and "The extension ends beyond the header"
                or "Unknown extension, which hides all behind it")
            return
        end
        local item = tree:add(f.ext, tvb(at, 1))
        for _, each in ipairs(known_type[2]) do
            item:add(each[1], tvb(at + 1 + each[2], each[3]))
        end
        at = at + 1 + known_type[1]
    end
end

local function show_header(tvb, tree, h)
    local sum = tvb(30, 2):uint()
    tree:add(f.seq, tvb(0, 8))
    tree:add(f.ack, tvb(8, 8))
    local length = tree:add(f.len, tvb(16, 4))
    if h.len > MAX_MESSAGE then
        length:add_proto_expert_info(e.long)
    elseif has(h.flags, CONG) and h.len ~= MAP and h.kind ~= "Acknowledgement" then
        length:add_proto_expert_info(e.map_len)
    end
    tree:add(f.sport, tvb(20, 2))
    tree:add(f.dport, tvb(22, 2))
    tree:add(f.port, tvb(20, 2)):set_hidden()
    tree:add(f.port, tvb(22, 2)):set_hidden()
    local flags = tree:add(f.flags, tvb(24, 1))
    for _, flag in ipairs({ f.cong, f.ackreq, f.retrans, f.hb_ping, f.hb_pong, f.ext_flag }) do
        flags:add(flag, tvb(24, 1))
    end
    if h.flags >= 0x40 then
        flags:add_proto_expert_info(e.flags)
    end
    tree:add(f.credit, tvb(25, 1))
    tree:add(f.padding, tvb(26, 4))
    local item = tree:add(f.checksum, tvb(30, 2))
    if right_sum(tvb) then
        item:append_text(" [correct]")
    elseif sum == 0 then
        item:append_text(" [none]")
    else
        item:append_text(" [incorrect]")
        item:add_proto_expert_info(e.sum)
    end
    extensions(tvb, tree)
    tree:add(f.kind, h.kind):set_generated()
end

-- show_map: lists the congested ports in a part of a map, whose first bit is that of a port.
local function show_map(tvb, tree, offset)
    local range = tvb()
    local item = tree:add(f.map, range)
    local bytes, count, at = range:raw(), 0, 0
    while true do
        at = bytes:find("[\1-\255]", at + 1)
        if not at then
            break
        end
        local byte = bytes:byte(at)
        for bit = 0, 7 do
            if has(byte, 2 ^ bit) then
                count = count + 1
                if count <= MOST_PORTS then
                    item:add(f.map_port, tvb(at - 1, 1), (offset + at - 1) * 8 + bit)
                end
            end
        end
    end
    item:add(f.map_count, count):set_generated()
end

-- show_payload: shows the `len` bytes behind a header, or all that follow it.
local function show_payload(frame, tree, h, offset, len)
    len = math.min(len or MAX_MESSAGE, frame:len() - HEADER)
    if len <= 0 then
        return
    end
    local tvb = frame(HEADER, len):tvb()
    if has(h.flags, CONG) and offset and offset + tvb:len() <= MAP then
        show_map(tvb, tree, offset)
    else
        tree:add(f.payload, tvb())
    end
end

local function describe(pinfo, h, more)
    pinfo.cols.protocol = "RDS"
    local text = h.kind
    if h.kind ~= "Acknowledgement" and h.kind ~= "Congestion update" then
        text = string.format("%s %d -> %d, %d bytes, seq %s", h.kind, h.sport, h.dport, h.len, tostring(h.seq))
    end
    if has(h.flags, RETRANSMITTED) then
        text = text .. ", retransmitted"
    end
    return text .. (more or "")
end

local function add_tree(tvb, tree, text)
    local item = tree:add(rds, tvb())
    item:append_text(", " .. text)
    return item
end

-- fragment_offset: returns the offset of a fragment in its message, and whether its length fits.
-- The offset is nil if the beginning of the message is not in the capture.
local function fragment_offset(flow, pinfo, h, len)
    if pinfo.visited then
        local seen = offsets[pinfo.number]
        if seen then
            return seen[1], seen[2]
        end
        return nil, true
    end
    local at = progress[flow]
    local same = at and at.seq == h.seq and at.len == h.len and at.flags == has(h.flags, CONG)
        and at.sport == h.sport and at.dport == h.dport
    local offset = same and at.done or 0
    local whole = offset + len == h.len
    local fits = whole or offset + len < h.len and FRAGMENTS[len] == true
    if not fits and not same and len < h.len and (h.len - len) % 4096 == 0 then
        -- The last fragment of a message whose beginning is missing.
        offset, whole, fits = h.len - len, true, true
    end
    if fits and not whole then
        progress[flow] = { seq = h.seq, len = h.len, flags = has(h.flags, CONG), sport = h.sport, dport = h.dport,
            done = offset + len }
    else
        progress[flow] = nil
    end
    offsets[pinfo.number] = { offset, fits }
    return offset, fits
end

-- show_frame: shows a frame of a queue pair, which has a message, a part of one, or several.
-- `parts` has the packets of a frame that was put together.
local function show_frame(tvb, pinfo, tree, flow, parts)
    local texts, packed = {}, false
    local whole = tvb
    while true do
        if tvb:len() < HEADER then
            local item = tree:add(rds, tvb())
            item:add_proto_expert_info(e.short, string.format("%d bytes are too few for a header", tvb:len()))
            texts[#texts + 1] = "Malformed"
            break
        end
        local h = header_of(tvb)
        local text = describe(pinfo, h)
        local behind = tvb:len() - HEADER
        local ended = true
        local item
        if h.len > MAX_MESSAGE then
            item = add_tree(tvb, tree, text)
            show_header(tvb, item, h)
        elseif h.len < behind and not h.none then
            -- Another message shares the frame.
            item = add_tree(tvb(0, HEADER + h.len):tvb(), tree, text)
            show_header(tvb, item, h)
            show_payload(tvb, item, h, 0, h.len)
            local used = HEADER + h.len
            local after = used + (-used) % ALIGN
            if not packed and whole:len() > HEADER + MAX_PACKED then
                item:add_proto_expert_info(e.fragment, "A frame with several messages is too long")
            elseif after < tvb:len() then
                packed, ended = true, false
                tvb = tvb(after):tvb()
            else
                item:add_proto_expert_info(e.fragment, "Bytes follow the last message")
            end
        elseif packed and h.len ~= behind then
            item = add_tree(tvb, tree, text)
            show_header(tvb, item, h)
            item:add_proto_expert_info(e.fragment, "The last message of the frame is incomplete")
            show_payload(tvb, item, h)
        else
            item = add_tree(tvb, tree, text)
            show_header(tvb, item, h)
            local offset, fits = 0, h.len == behind
            if not packed and h.len ~= 0 then
                offset, fits = fragment_offset(flow, pinfo, h, behind)
                if offset and behind < h.len then
                    item:add(f.offset, offset):set_generated()
                    text = string.format("%s, from byte %d", text, offset)
                end
            end
            if not fits then
                item:add_proto_expert_info(e.fragment, string.format(
                    "%d bytes do not fit a message of %d bytes", behind, h.len))
            end
            show_payload(tvb, item, h, offset)
        end
        if parts and #texts == 0 then
            item:add(f.first, parts.first):set_generated()
            item:add(f.count, parts.count):set_generated()
        end
        texts[#texts + 1] = text
        if ended then
            break
        end
    end
    pinfo.cols.protocol = "RDS"
    pinfo.cols.info = table.concat(texts, "; ")
end

local SEND_FIRST, SEND_MIDDLE, SEND_LAST, SEND_ONLY = 0, 1, 2, 4
local ENDS = { [SEND_LAST] = true, [3] = true, [0x16] = true }
local ONLY = { [SEND_ONLY] = true, [5] = true, [0x17] = true }

local function show_part(tvb, pinfo, tree, text)
    pinfo.cols.protocol = "RDS"
    pinfo.cols.info = text
    local item = tree:add(rds, tvb())
    item:append_text(", " .. text)
    item:add(f.part, tvb())
    return item
end

-- show_sent: shows a packet of a SEND over InfiniBand or RoCE, which may be a part of a frame.
local function show_sent(tvb, pinfo, tree, flow, code)
    if ONLY[code] then
        show_frame(tvb, pinfo, tree, flow)
        return
    end
    local number = number_of(psn) or 0
    local frame = assembled[pinfo.number]
    if not pinfo.visited and not frame then
        local parts = assembly[flow]
        if code == SEND_FIRST then
            parts = { first = pinfo.number, count = 0, len = 0, bytes = {} }
        elseif parts and number ~= (parts.psn + 1) % 0x1000000 then
            parts = nil
        end
        if parts then
            parts.psn, parts.count, parts.len = number, parts.count + 1, parts.len + tvb:len()
            parts.bytes[parts.count] = tvb():bytes()
            if parts.len > LONGEST_FRAME then
                parts = nil
            end
        end
        if parts and ENDS[code] then
            frame = { first = parts.first, count = parts.count, bytes = ByteArray.new() }
            for _, bytes in ipairs(parts.bytes) do
                frame.bytes:append(bytes)
            end
            assembled[pinfo.number] = frame
            parts = nil
        end
        assembly[flow] = parts
    end
    if frame then
        show_frame(frame.bytes:tvb("RDS frame"), pinfo, tree, flow, frame)
    elseif code == SEND_FIRST and tvb:len() >= HEADER then
        local h = header_of(tvb)
        local item = show_part(tvb, pinfo, tree, describe(pinfo, h, ", first packet"))
        show_header(tvb, item, h)
    elseif ENDS[code] then
        show_part(tvb, pinfo, tree, "Last packet of a frame"):add_proto_expert_info(e.lost)
    else
        show_part(tvb, pinfo, tree, "Packet of a frame")
    end
end

-- flow_of: returns a name for the direction of a queue pair.
local function flow_of(address, qp)
    return string.format("%s/%d", tostring(address), qp)
end

-- cut: shows a packet of which the capture has only the beginning.
local function cut(tvb, pinfo, tree)
    if tvb:reported_len() <= tvb:len() then
        return false
    end
    local text = "Cut by the capture"
    if tvb:len() >= HEADER then
        local h = header_of(tvb)
        text = describe(pinfo, h, ", cut by the capture")
    end
    local item = show_part(tvb, pinfo, tree, text)
    if tvb:len() >= HEADER then
        show_header(tvb, item, header_of(tvb))
    end
    item:add_proto_expert_info(e.cut)
    return true
end

local function infiniband(tvb, pinfo, tree)
    local code, qp = number_of(opcode), number_of(destqp)
    if not code or not qp or qp < 2 or not (code <= 5 or code == 0x16 or code == 0x17) then
        return false
    end
    local flow = flow_of(pinfo.dst, qp)
    if not known[flow] then
        if not (code == SEND_FIRST or ONLY[code]) or not plausible(tvb) then
            return false
        end
        known[flow] = true
    end
    if cut(tvb, pinfo, tree) then
        return true
    end
    local pad = number_of(pad_count) or 0
    if pad > 0 and pad <= tvb:len() then
        tvb = tvb(0, tvb:len() - pad):tvb()
    end
    show_sent(tvb, pinfo, tree, flow, code)
    return true
end
rds:register_heuristic("infiniband.payload", infiniband)

-- The iWARP dissector puts the packets of a frame together. There is no number of a queue pair.
local function over_iwarp(tvb, pinfo, tree)
    local port = (pinfo.dst_port == PORT_V4 or pinfo.dst_port == PORT_V6) or
        (pinfo.src_port == PORT_V4 or pinfo.src_port == PORT_V6)
    local flow = string.format("tcp/%s/%d", tostring(first_of(tcp_stream)), pinfo.dst_port)
    if not port and not known[flow] and not plausible(tvb) then
        return false
    end
    known[flow] = true
    if not cut(tvb, pinfo, tree) then
        show_frame(tvb, pinfo, tree, flow)
    end
    return true
end
rds:register_heuristic("iwarp_ddp_rdmap", over_iwarp)

-- RDS over TCP: a header, and the whole message behind it.

local function message_len(tvb, _, offset)
    local len = tvb(offset + 16, 4):uint()
    -- Nothing behind such a header can be found.
    return len > MAX_MESSAGE and tvb:len() - offset or HEADER + len
end

-- Descriptions of the messages that end in the segment which is being dissected.
local segment = {}

local function tcp_message(tvb, pinfo, tree)
    if tvb:len() < HEADER then
        local item = show_part(tvb, pinfo, tree, "Malformed")
        item:add_proto_expert_info(e.short)
        return tvb:len()
    end
    local h = header_of(tvb)
    local text = describe(pinfo, h)
    local item = add_tree(tvb, tree, text)
    show_header(tvb, item, h)
    if h.len <= MAX_MESSAGE then
        show_payload(tvb, item, h, 0)
    end
    segment[#segment + 1] = text
    pinfo.cols.info = table.concat(segment, "; ")
    return tvb:len()
end

-- is_iwarp: returns whether a stream carries iWARP. Its first frames name the protocol; a later one
-- has a length, and the versions of two protocols. The first bytes decide for the whole stream.
local function is_iwarp(tvb)
    local stream = tostring(first_of(tcp_stream))
    if iwarp[stream] == nil and tvb:len() >= 16 then
        local begin = tvb(0, 16):raw()
        local versions = tvb(2, 1):uint() % 4 == 1 and math.floor(tvb(3, 1):uint() / 64) == 1
        iwarp[stream] = begin == "MPA ID Req Frame" or begin == "MPA ID Rep Frame"
            or versions and not plausible(tvb)
    end
    return iwarp[stream]
end

local function over_tcp(tvb, pinfo, tree)
    if tvb:len() == 0 or is_iwarp(tvb) then
        return 0
    end
    if tvb:reported_len() > tvb:len() then
        cut(tvb, pinfo, tree)
        return tvb:len()
    end
    segment = {}
    dissect_tcp_pdus(tvb, tree, HEADER, message_len, tcp_message, true)
    return tvb:len()
end
rds.dissector = over_tcp
DissectorTable.get("tcp.port"):add(PORT_V6, rds)

-- The connection manager.

local function show_private(tvb, pinfo, tree, v6, what)
    local size = v6 and 16 or 4
    local item = tree:add(cm, tvb())
    pinfo.cols.protocol = "RDS CM"
    if tvb:len() < 2 * size + 24 then
        item:add_proto_expert_info(ce.short)
        return
    end
    item:add(v6 and c.saddr6 or c.saddr4, tvb(0, size))
    item:add(v6 and c.daddr6 or c.daddr4, tvb(size, size))
    local at = 2 * size
    local major, minor = tvb(at, 1):uint(), tvb(at + 1, 1):uint()
    item:add(c.major, tvb(at, 1))
    item:add(c.minor, tvb(at + 1, 1))
    item:add(c.mask, tvb(at + 2, 2))
    item:add(c.tos, tvb(at + 4, 1))
    item:add(c.reserved, tvb(at + 5, 1))
    item:add(c.frag, tvb(at + 6, 2))
    item:add(c.ack, tvb(at + 8, 8))
    item:add(c.credit, tvb(at + 16, 4))
    item:add(c.padding, tvb(at + 20, 4))
    local text = string.format("%s, version %d.%d, type of service %d", what, major, minor, tvb(at + 4, 1):uint())
    item:append_text(", " .. text)
    pinfo.cols.info:append(", RDS " .. text)
    if major ~= 3 and major ~= 4 then
        item:add_proto_expert_info(ce.version)
    end
end

local function show_rejection(tvb, pinfo, tree)
    local item = tree:add(cm, tvb())
    pinfo.cols.protocol = "RDS CM"
    local bytes = tvb(0, math.min(8, tvb:len()))
    item:add(c.reject, bytes)
    local raw = bytes:raw()
    local why = "unexplained"
    if raw:find("^....busy") then
        why = "not because of the version"
    elseif raw:find("[\1-\255]") then
        why = "version, or a request of its own"
    end
    item:add(c.why, why):set_generated()
    item:append_text(", rejection")
end

local function service_port()
    local service = first_of(service_id)
    local port = service and tonumber(tostring(service)) - SERVICE
    return (port == PORT_V4 or port == PORT_V6) and port
end

local function private_data(tvb, pinfo, tree)
    local port = service_port()
    if port then
        local number = tostring(first_of(req_id))
        requests[number] = port
        known[flow_of(pinfo.src, number_of(req_qp) or 0)] = true
        show_private(tvb, pinfo, tree, port == PORT_V6, "request")
        return true
    end
    local reply, rejected = first_of(rep_id), first_of(rej_id)
    if not pinfo.visited then
        answers[pinfo.number] = requests[tostring(reply or rejected)]
    end
    port = answers[pinfo.number]
    if port and reply then
        known[flow_of(pinfo.src, number_of(rep_qp) or 0)] = true
        show_private(tvb, pinfo, tree, port == PORT_V6, "reply")
    elseif port and rejected then
        show_rejection(tvb, pinfo, tree)
    end
    return (port and (reply or rejected)) ~= nil
end
cm:register_heuristic("infiniband.mad.cm.private", private_data)

-- No dissector can register for private data of iWARP, so this one runs after all others.
function cm.dissector(_, pinfo, tree)
    local info = mpa_private()
    if not info then
        return
    end
    local port
    for _, each in ipairs({ pinfo.dst_port, pinfo.src_port }) do
        port = port or (each == PORT_V4 or each == PORT_V6) and each
    end
    if not port then
        return
    end
    local tvb = info.range:tvb()
    -- From revision 2 on, queue depths of the MPA may come first.
    local size = (port == PORT_V6 and 32 or 8) + 24
    if tvb:len() == size + 4 then
        tvb = tvb(4):tvb()
    end
    show_private(tvb, pinfo, tree, port == PORT_V6, mpa_reply() and "reply" or "request")
end
register_postdissector(cm)
