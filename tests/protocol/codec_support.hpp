// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Messages with every part in them, and a reader that writes again what it has read. Shared
/// by the tests of the codec and its fuzz target.

#include <cohort/protocol/message_reader.hpp>
#include <cohort/protocol/node.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace protocol_codec {

using namespace cohort::protocol;
using cohort::rank_set;
using bytes = std::vector<std::byte>;

/// Writes each part that it is given.
struct rewriter {
  explicit rewriter(bytes& out) : to(out) {}

  // As a node does for an id beyond its cache. A block holds an id once, so one that does not
  // ascend begins another: what is written is read as the same blocks.
  void on_id(std::uint32_t id) {
    if (id > 100'000) throw protocol_error(fault::malformed, "unknown id");
    if (id < next_id) flush_ids();
    ids.insert(id);
    next_id = id + 1;
  }
  void flush_ids() {
    ids.write(to);
    ids.clear();
    next_id = 0;
  }
  void on(const announcement& a) { put(part::announce, a); }
  void on(const contradiction& k) { put(part::contradiction, k); }
  void on(const withdrawal& w) { put(part::withdraw, w); }
  void on(const leaving& v) { put(part::leave, v); }
  void on(const std::vector<start_count>& counts) { put(part::counts, counts); }
  void on(const stall_answer& answer) { put(part::answer, answer); }
  void on(const data_fault& cause) { put(part::fault, cause); }
  void on(const failed& item) { put(part::fail, item); }
  void on(const adjustment& item) { put(part::adjust, item); }
  void on(const closing& item) { put(part::close, item); }
  void on_join(std::uint32_t set) { number(part::join, set); }
  void on_joined(std::uint32_t set) { number(part::join, set); }
  void on_set_ended(std::uint32_t set) { number(part::end, set); }
  void on_generation(std::uint64_t keep) { number(part::generation, keep); }
  void on_stall_wanted() { tag(part::stall_wanted); }
  void on_end() { tag(part::end); }
  void on_query(std::uint64_t query, std::uint64_t budget) {
    number(part::query, query);
    to.varint(budget);
  }
  void on_elected_id(std::uint32_t id, bool last) {
    elected item;
    item.entry.id = id;
    on_elected(item, last);
  }
  void on_elected(const elected& item, bool last) {
    pack.push_back(item);
    if (!last) return;
    put_execute(to, pack);
    pack.clear();
  }
  void begin_item() { ++items; }
  void end_item() {}

  void tag(part which) {
    flush_ids();
    to.byte(static_cast<std::uint8_t>(which));
  }
  void number(part which, std::uint64_t value) {
    tag(which);
    to.varint(value);
  }
  template <class T>
  void put(part which, const T& value) {
    flush_ids();
    put_part(to, which, value);
  }

  cohort::wire::writer to;
  id_block ids;
  std::uint32_t next_id = 0;  // the least that may follow in the block
  std::vector<elected> pack;
  std::size_t items = 0;
};

/// What comes out when a message is read and written again. Throws protocol_error.
inline bytes copy_of(std::span<const std::byte> message) {
  bytes out;
  rewriter copy(out);
  cohort::wire::reader in(message);
  const header head = get_header(in);
  put_header(copy.to, head);
  if (head.up) {
    read_up(in, copy);
  } else {
    read_down(in, copy);
  }
  copy.flush_ids();
  return out;
}

inline signature unusual_signature() {
  signature sig;
  sig.kind = op_kind::broadcast;
  sig.element = 11;
  sig.space = cohort::memory_space::device;
  sig.flags = signature_flag::divide_by_all;
  sig.element_size = 8;
  sig.reduction = 0xdeadbeef;
  sig.root = 12;
  sig.priority = -3;
  sig.prescale = .5;
  sig.postscale = 1e300;
  sig.dimensions = {1, 0, std::int64_t{1} << 40};
  sig.detail = 17;
  sig.members = "a:4;b:8";
  sig.places = "7+64, none";
  return sig;
}

inline signature message_signature() {
  signature sig;
  sig.kind = op_kind::message;
  sig.element_size = 4;
  sig.root = 3;
  sig.detail = 900;
  sig.dimensions = {64};
  return sig;
}

inline const std::string message_text = message_name(3, 900, "activations");

inline wire_operation some_operation() { return {{none, 2, "layer1/w"}, -5}; }

inline stall_answer some_answer() {
  stall_answer answer;
  answer.number = 9;
  answer.generation = 2;
  answer.rows.push_back({some_operation(), {unusual_signature(), {1, 2, 5}, {"file.cpp", 8}}});
  answer.joined.emplace_back(1, rank_set::span(3, 900));
  answer.silent = {4};
  answer.unknown = rank_set::span(5, 11);
  return answer;
}

inline bytes sample_up() {
  bytes out;
  rewriter to(out);
  put_header(to.to, {true, 300});
  for (const std::uint32_t id : {3U, 4U, 70U, 1000U}) to.on_id(id);
  announcement a;
  a.entry = {none, 1, "name", unusual_signature(), {"some/file.cpp", 77}};
  a.number = 400;
  a.partial = true;
  a.whole = false;
  a.who = {0, 1, 7, 9};
  to.on(a);
  a = {};
  a.entry.id = 8;
  a.implied = true;
  a.sizes = 1234;
  to.on(a);
  a = {};
  a.entry = {none, 0, message_text, message_signature(), {"here.cpp", 5}};
  a.number = 2;
  to.on(a);
  to.on(contradiction{some_operation(),
                      {{unusual_signature(), {1}, {}}, {signature{}, {2, 3}, {"x", 1}}}});
  to.on(withdrawal{{{55, 0, {}}, 6}, 3, withdrawal_reason::deadline});
  to.on_join(2);
  to.on(std::vector<start_count>{{{none, 0, "group"}, 3, 5}});
  to.on_stall_wanted();
  to.on(some_answer());
  to.on(data_fault{2, 99, "MPI_ERR_TRUNCATE"});
  to.on(leaving{{0, 5}, departure::abandoned, {some_operation()}, {0, 1}});
  to.on(leaving{{2}, departure::drained, {some_operation()}, {}, 3, "no weights"});
  to.on_end();
  return out;
}

inline bytes sample_down() {
  bytes out;
  rewriter to(out);
  put_header(to.to, {false, 12});
  for (const std::uint32_t id : {7U, 8U, 3U}) to.on_elected_id(id, id == 3);
  to.on(adjustment{{0, 262144, UINT64_MAX}});
  elected item;
  item.entry = {none, 0, "fresh", unusual_signature(), {}};
  item.define = true;
  item.whole = false;
  item.contributors = 3;
  to.on_elected(item, false);
  item.entry = {none, 0, message_text, message_signature(), {}};
  item.define = false;
  item.contributors = 2;
  to.on_elected(item, false);
  to.on_elected_id(1, true);
  failed fail;
  fail.operation = some_operation();
  fail.why.kind = failure_kind::withdrawn;
  fail.why.rank = 2;
  fail.why.reason = withdrawal_reason::deadline;
  fail.why.asked = true;
  fail.why.ready = {1, 2};
  fail.why.missing = {0};
  fail.why.sides.push_back({unusual_signature(), {1}, {"f", 2}});
  fail.why.text = "text";
  to.on(fail);
  to.on_joined(0);
  to.on_generation(5);
  to.on(leaving{{3}, departure::drained, {}, {}});
  to.on(leaving{{1, 2}, departure::abandoned, {}, {}, 7, "cannot open it (a.cpp:3)"});
  to.on_set_ended(7);
  to.on(std::vector<start_count>{{{4, 0, {}}, 0, 1}});
  to.on(closing{true, {1, 2, "cause"}});
  to.on_query(3, 1'000'000);
  to.on(some_answer());
  return out;
}

}  // namespace protocol_codec
