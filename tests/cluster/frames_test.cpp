// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Frames: what is sent arrives, however it is cut; what is no frame is found out.

#include <cohort/cluster/link/message.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace cluster = cohort::cluster;
using cluster::frame_head;
using cluster::frame_reader;
using cluster::message;
using cluster::message_kind;
using bytes = std::vector<std::byte>;

namespace {

constexpr std::size_t no_limit = std::size_t{1} << 30U;

bytes counted(std::size_t size, unsigned from = 0) {
  bytes out(size);
  for (std::size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(from + i);
  return out;
}

void add_frame(bytes& stream, message_kind kind, std::uint64_t id, const bytes& body,
               bool last = true) {
  const auto head =
      cluster::encode_frame_head({static_cast<std::uint32_t>(body.size()), kind, last, id});
  stream.insert(stream.end(), head.begin(), head.end());
  stream.insert(stream.end(), body.begin(), body.end());
}

/// What a reader makes of pieces of this size.
std::vector<message> read(const bytes& stream, std::size_t piece, std::size_t limit = no_limit) {
  frame_reader reader(limit);
  std::vector<message> all;
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    const auto part = std::span(stream).subspan(at, std::min(piece, stream.size() - at));
    REQUIRE(reader.feed(part, [&](message&& each) {
      all.push_back(std::move(each));
      return true;
    }));
  }
  CHECK(reader.idle());
  return all;
}

/// Whether a reader takes it.
bool accepted(const bytes& stream, std::size_t limit = no_limit) {
  frame_reader reader(limit);
  return reader.feed(stream, [](message&&) { return true; });
}

}  // namespace

TEST_CASE("frames may be cut anywhere") {
  bytes stream;
  add_frame(stream, message_kind::identity, 0, counted(7));
  add_frame(stream, message_kind::cancel, 0x8877665544332211U, {});
  add_frame(stream, message_kind::call, 3, counted(5), false);
  add_frame(stream, message_kind::call, 3, counted(4, 5), false);
  add_frame(stream, message_kind::call, 3, {}, true);
  add_frame(stream, message_kind::result, 3, counted(1));
  const auto check = [](const std::vector<message>& all) {
    REQUIRE(all.size() == 4);
    CHECK(all[0].kind == message_kind::identity);
    CHECK((all[0].bytes == counted(7)));
    CHECK(all[1].kind == message_kind::cancel);
    CHECK(all[1].id == 0x8877665544332211U);
    CHECK(all[1].bytes.empty());
    CHECK(all[2].kind == message_kind::call);
    CHECK((all[2].bytes == counted(9)));
    CHECK(all[3].kind == message_kind::result);
    CHECK((all[3].bytes == counted(1)));
    for (const message& each : all) CHECK_FALSE(each.oversize);
  };
  for (std::size_t piece = 1; piece <= stream.size(); ++piece) check(read(stream, piece));
  for (std::size_t cut = 0; cut <= stream.size(); ++cut) {  // at one place only
    frame_reader reader(no_limit);
    std::vector<message> all;
    const auto sink = [&](message&& each) {
      all.push_back(std::move(each));
      return true;
    };
    REQUIRE(reader.feed(std::span(stream).first(cut), sink));
    REQUIRE(reader.feed(std::span(stream).subspan(cut), sink));
    check(all);
  }
}

TEST_CASE("a reader knows whether it stands between two messages") {
  bytes stream;
  add_frame(stream, message_kind::call, 1, counted(3), false);
  const std::size_t first = stream.size();
  add_frame(stream, message_kind::call, 1, counted(2), true);
  for (std::size_t size = 0; size <= stream.size(); ++size) {
    frame_reader reader(no_limit);
    REQUIRE(reader.feed(std::span(stream).first(size), [](message&&) { return true; }));
    CHECK(reader.idle() == (size == 0 || size == stream.size()));
  }
  CHECK(first == 19);
}

TEST_CASE("messages of several frames may take turns") {
  constexpr std::size_t together = cluster::interleaved_limit;
  bytes stream;
  for (int round = 0; round < 5; ++round) {
    for (std::size_t id = 0; id < together; ++id) {
      // The same number may stand for a call and for an answer.
      const auto kind = id % 2 == 0 ? message_kind::call : message_kind::result;
      add_frame(stream, kind, id / 2, counted(10, static_cast<unsigned>(10 * round)), round == 4);
      add_frame(stream, message_kind::cancel, 0, {});  // small ones pass
    }
  }
  const auto all = read(stream, 23);
  REQUIRE(all.size() == 5 * together + together);
  std::size_t large = 0;
  for (const message& each : all) {
    if (each.kind == message_kind::cancel) continue;
    CHECK(each.kind == (large % 2 == 0 ? message_kind::call : message_kind::result));
    CHECK(each.id == large / 2);
    CHECK((each.bytes == counted(50)));
    ++large;
  }
  CHECK(large == together);
}

TEST_CASE("too many unfinished messages are refused") {
  bytes stream;
  for (std::size_t id = 0; id < cluster::interleaved_limit; ++id) {
    add_frame(stream, message_kind::call, id, counted(1), false);
  }
  CHECK(accepted(stream));
  bytes more = stream;
  add_frame(more, message_kind::call, 0, counted(1), false);  // goes on with one of them
  CHECK(accepted(more));
  add_frame(stream, message_kind::call, 99, counted(1), false);
  CHECK_FALSE(accepted(stream));
}

TEST_CASE("a message that is too long is dropped and said to be so") {
  for (const std::size_t size : {std::size_t{99}, std::size_t{100}, std::size_t{101}}) {
    bytes stream;
    add_frame(stream, message_kind::call, 1, counted(60), false);
    add_frame(stream, message_kind::call, 1, counted(size - 60), true);
    add_frame(stream, message_kind::call, 2, counted(size));
    add_frame(stream, message_kind::call, 3, counted(100));
    for (const std::size_t piece : {std::size_t{1}, std::size_t{64}, stream.size()}) {
      const auto all = read(stream, piece, 100);
      REQUIRE(all.size() == 3);
      for (const message& each : all) {
        const bool long_one = size > 100 && each.id != 3;
        CHECK(each.oversize == long_one);
        CHECK(each.bytes.size() == (each.id == 3 ? 100 : long_one ? 0 : size));
      }
    }
  }
}

TEST_CASE("a message without end takes no memory above the limit") {
  frame_reader reader(1000);
  bytes frame;
  add_frame(frame, message_kind::call, 1, counted(100'000), false);
  bytes end;
  add_frame(end, message_kind::call, 1, {}, true);
  std::size_t seen = 0;
  const auto sink = [&](message&& each) {
    ++seen;
    CHECK(each.oversize);
    CHECK(each.bytes.empty());
    CHECK(each.bytes.capacity() == 0);
    return true;
  };
  for (int i = 0; i < 100; ++i) REQUIRE(reader.feed(frame, sink));
  REQUIRE(reader.feed(end, sink));
  CHECK(seen == 1);
}

TEST_CASE("bytes that are announced take no memory before they are there") {
  frame_reader reader(no_limit);
  bytes stream;
  add_frame(stream, message_kind::call, 1, bytes(cluster::frame_limit));
  stream.resize(cluster::frame_head_size + 10);
  REQUIRE(reader.feed(stream, [](message&&) { return true; }));
  CHECK_FALSE(reader.idle());
  std::size_t capacity = 0;
  bytes rest(cluster::frame_limit - 10);
  REQUIRE(reader.feed(rest, [&](message&& each) {
    capacity = each.bytes.capacity();
    return true;
  }));
  CHECK(capacity >= cluster::frame_limit);
  CHECK(capacity <= 2 * cluster::frame_limit);
}

TEST_CASE("heads that no frame has are refused") {
  const auto good = cluster::encode_frame_head({5, message_kind::call, true, 77});
  frame_head head;
  REQUIRE(cluster::decode_frame_head(good, head));
  CHECK(head.size == 5);
  CHECK(head.kind == message_kind::call);
  CHECK(head.last);
  CHECK(head.id == 77);
  const auto with = [&](std::size_t place, unsigned value) {
    auto text = good;
    text[place] = static_cast<std::byte>(value);
    const bool fine = cluster::decode_frame_head(text, head);
    if (fine) CHECK(cluster::encode_frame_head(head) == text);
    bytes stream(text.begin(), text.end());
    if (!fine) CHECK_FALSE(accepted(stream));
    return fine;
  };
  for (unsigned kind = 0; kind < 256; ++kind) {
    CHECK(with(4, kind) ==
          (kind >= 1 && kind <= static_cast<unsigned>(cohort::cluster::last_message_kind)));
  }
  for (unsigned last = 0; last < 256; ++last) CHECK(with(5, last) == (last <= 2));
  for (unsigned zero = 0; zero < 256; ++zero) {
    CHECK(with(6, zero) == (zero == 0));
    CHECK(with(7, zero) == (zero == 0));
  }
  for (unsigned high = 1; high < 256; ++high) CHECK_FALSE(with(3, high));  // above 16 MiB
  const auto limit = static_cast<std::uint32_t>(cluster::frame_limit);
  CHECK(cluster::decode_frame_head(cluster::encode_frame_head({limit, message_kind::call, true, 0}),
                                   head));
  CHECK_FALSE(cluster::decode_frame_head(
      cluster::encode_frame_head({limit + 1, message_kind::call, true, 0}), head));
}

TEST_CASE("empty frames that are not the last are refused") {
  bytes stream;
  add_frame(stream, message_kind::call, 1, {}, false);
  CHECK_FALSE(accepted(stream));
  stream.clear();
  add_frame(stream, message_kind::call, 1, counted(1), false);
  CHECK(accepted(stream));
  add_frame(stream, message_kind::call, 1, {}, false);
  CHECK_FALSE(accepted(stream));
}

TEST_CASE("who takes the messages can stop it") {
  bytes stream;
  for (std::uint64_t id = 0; id < 4; ++id) add_frame(stream, message_kind::cancel, id, {});
  frame_reader reader(no_limit);
  std::vector<std::uint64_t> ids;
  CHECK_FALSE(reader.feed(stream, [&](message&& each) {
    ids.push_back(each.id);
    return each.id < 2;
  }));
  CHECK(ids == std::vector<std::uint64_t>{0, 1, 2});
}

namespace {

/// Another one than the reader makes here.
template <class Container>
cluster::attachment_ptr attach(const Container& what) {
  return cluster::attachment_of<Container>::sent(Container(what));
}

/// What a link sends of such a message, in frames of that size.
bytes attached_stream(std::uint64_t id, const cluster::payload& what, std::size_t frame) {
  cluster::payload with_table = what;
  cluster::attachment_table::append_to(with_table);
  bytes stream;
  const auto head = cluster::encode_frame_head(
      {static_cast<std::uint32_t>(with_table.bytes.size()), message_kind::call, false, id, true});
  stream.insert(stream.end(), head.begin(), head.end());
  stream.insert(stream.end(), with_table.bytes.begin(), with_table.bytes.end());
  bytes all;
  for (const auto& each : what.attachments) {
    all.insert(all.end(), each->bytes().begin(), each->bytes().end());
  }
  for (std::size_t at = 0; at < all.size(); at += frame) {
    const auto part = std::span(all).subspan(at, std::min(frame, all.size() - at));
    add_frame(stream, message_kind::call, id, bytes(part.begin(), part.end()),
              at + part.size() == all.size());
  }
  return stream;
}

void check_same(const message& got, const cluster::payload& sent) {
  CHECK_FALSE(got.oversize);
  CHECK((got.bytes == sent.bytes));
  REQUIRE(got.attachments.size() == sent.attachments.size());
  for (std::size_t i = 0; i < got.attachments.size(); ++i) {
    CHECK(got.attachments[i]->number() == sent.attachments[i]->number());
    CHECK(std::ranges::equal(got.attachments[i]->bytes(), sent.attachments[i]->bytes()));
  }
}

cluster::payload three_attachments() {
  cluster::payload what(counted(30));
  what.attachments.push_back(attach(std::vector<double>(11, 0.25)));
  what.attachments.push_back(attach(std::string("a text of some length")));
  what.attachments.push_back(attach(counted(100, 7)));
  return what;
}

/// As a link on a socket does: to where the reader wants them, and a head behind that.
std::vector<message> read_into_room(const bytes& stream, std::size_t piece, std::size_t& in_rooms) {
  frame_reader reader(no_limit);
  std::vector<message> all;
  std::span<const std::byte> left = stream;
  while (!left.empty()) {
    const auto room = reader.room();
    const std::size_t in_room = std::min({room.size(), piece, left.size()});
    std::ranges::copy(left.first(in_room), room.begin());
    in_rooms += in_room;
    left = left.subspan(in_room);
    std::size_t others = 0;
    if (in_room == room.size()) {
      others = room.empty() ? std::min(piece, left.size())
                            : std::min(cluster::frame_head_size, left.size());
    }
    REQUIRE(reader.feed(
        left.first(others),
        [&](message&& each) {
          all.push_back(std::move(each));
          return true;
        },
        in_room));
    left = left.subspan(others);
  }
  CHECK(reader.idle());
  return all;
}

}  // namespace

TEST_CASE("attachments come behind the bytes of their message, however they are cut") {
  const cluster::payload sent = three_attachments();
  for (const std::size_t frame : {std::size_t{1}, std::size_t{88}, std::size_t{100}, no_limit}) {
    bytes stream = attached_stream(5, sent, frame);
    add_frame(stream, message_kind::cancel, 6, {});
    for (const std::size_t piece : {std::size_t{1}, std::size_t{17}, stream.size()}) {
      const auto all = read(stream, piece);
      REQUIRE(all.size() == 2);
      check_same(all[0], sent);
      CHECK(all[1].kind == message_kind::cancel);
      CHECK(all[1].attachments.empty());
    }
  }
}

TEST_CASE("large attachments are read into the place where they stay") {
  cluster::payload sent(counted(30));
  sent.attachments.push_back(attach(counted(5'000'000)));
  sent.attachments.push_back(attach(std::vector<double>(700'000, 0.5)));
  const bytes stream = attached_stream(1, sent, cluster::frame_limit);
  for (const std::size_t piece : {std::size_t{1000}, std::size_t{65536}, std::size_t{300'000}}) {
    std::size_t in_rooms = 0;
    const auto all = read_into_room(stream, piece, in_rooms);
    REQUIRE(all.size() == 1);
    check_same(all[0], sent);
    CHECK(in_rooms > 10'000'000);
  }
}

TEST_CASE("attachments that are announced take no memory before they are there") {
  constexpr std::size_t gib = std::size_t{1} << 30U;
  cluster::payload what;
  what.attachments.push_back(attach(std::string("x")));
  const auto number = what.attachments[0]->number();
  bytes table(16);
  cluster::detail::store(table.data(), number, 4);
  cluster::detail::store(table.data() + 4, gib, 8);
  cluster::detail::store(table.data() + 12, 1, 4);
  cluster::payload announced(table);
  CHECK(cluster::attachment_table::take_from(announced, gib) == gib);
  REQUIRE(announced.attachments.size() == 1);
  CHECK(announced.attachments[0]->bytes().empty());
  CHECK(announced.attachments[0]->capacity() < 100);
  const std::size_t first = announced.attachments[0]->room(0).size();
  CHECK(first > 0);
  CHECK(first <= std::size_t{256} * 1024);
  CHECK(announced.attachments[0]->capacity() <= std::size_t{64} << 20U);
}

TEST_CASE("tables of attachments that say what cannot be are refused") {
  const cluster::payload good = three_attachments();
  cluster::payload with_table = good;
  cluster::attachment_table::append_to(with_table);
  const auto accepts = [](const bytes& text, std::size_t most = no_limit) {
    cluster::payload what(text);
    return cluster::attachment_table::take_from(what, most).has_value();
  };
  CHECK(accepts(with_table.bytes));
  CHECK(accepts(with_table.bytes, 1));  // who asks finds that it is too much
  const std::size_t end = with_table.bytes.size();
  const auto with = [&](std::size_t back, std::uint64_t value, std::size_t size) {
    bytes text = with_table.bytes;
    cluster::detail::store(text.data() + end - back, value, size);
    return accepts(text);
  };
  CHECK_FALSE(with(4, 0, 4));                              // none
  CHECK_FALSE(with(4, 6, 4));                              // more than there are
  CHECK_FALSE(with(4, cluster::attachment_limit + 1, 4));  // or may be
  CHECK_FALSE(with(16, ~std::uint32_t{0}, 4));             // no container
  CHECK_FALSE(with(40, good.attachments[0]->number() + 0x10000, 4));
  CHECK_FALSE(with(36, 87, 8));                 // no doubles
  CHECK_FALSE(with(36, 0, 8));                  // nothing
  CHECK_FALSE(with(36, ~std::uint64_t{0}, 8));  // more than can be counted
  for (std::size_t size = 0; size < 40; ++size) {
    CHECK_FALSE(accepts(
        bytes(with_table.bytes.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(size, 39)),
              with_table.bytes.end())));
  }
  CHECK_FALSE(accepts({}));
}

TEST_CASE("frames that do not fit the attachments are refused") {
  const cluster::payload sent = three_attachments();
  const bytes good = attached_stream(5, sent, no_limit);
  const std::size_t first = cluster::frame_head_size + 30 + 3 * 12 + 4;  // with the table
  const bytes begin(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(first));
  CHECK(accepted(good));
  CHECK(accepted(begin));
  const auto then = [&](std::size_t size, bool last) {
    bytes stream = begin;
    add_frame(stream, message_kind::call, 5, counted(size), last);
    return accepted(stream);
  };
  const std::size_t all = sent.size() - sent.bytes.size();
  CHECK(then(all, true));
  CHECK(then(all - 1, false));
  CHECK_FALSE(then(all - 1, true));
  CHECK_FALSE(then(all + 1, true));
  CHECK_FALSE(then(0, true));
  bytes twice = begin;
  twice.insert(twice.end(), begin.begin(), begin.end());
  CHECK_FALSE(accepted(twice));
  bytes after = begin;  // more than all, in a second frame
  add_frame(after, message_kind::call, 5, counted(all), false);
  CHECK(accepted(after));
  add_frame(after, message_kind::call, 5, counted(1), true);
  CHECK_FALSE(accepted(after));
}

TEST_CASE("a message whose attachments are too large is dropped and said to be so") {
  const cluster::payload sent = three_attachments();
  for (const std::size_t limit :
       {sent.size() + 40, sent.size(), sent.size() - 1, std::size_t{50}}) {
    bytes stream = attached_stream(5, sent, 64);
    add_frame(stream, message_kind::call, 6, counted(20));
    for (const std::size_t piece : {std::size_t{1}, std::size_t{50}, stream.size()}) {
      const auto all = read(stream, piece, limit);
      REQUIRE(all.size() == 2);
      const bool fits = limit >= sent.size() + 40;  // the table counts
      CHECK(all[0].oversize == (limit < sent.size()));
      if (fits) check_same(all[0], sent);
      if (all[0].oversize) CHECK(all[0].attachments.empty());
      CHECK((all[1].bytes == counted(20)));
    }
  }
}

TEST_CASE("what stands behind the arguments of a call leaves them as they were") {
  cluster::call_tail tail;
  tail.function = 0xfedcba98U;
  tail.flags = cluster::call_tail::ordered | cluster::call_tail::limited;
  tail.remaining = 0x8123456789abcdefU;
  tail.order = ~std::uint64_t{0};
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{24}, std::size_t{100}}) {
    bytes text = counted(size);
    tail.append_to(text);
    CHECK(text.size() == size + cluster::call_tail::size);
    const auto got = cluster::call_tail::take_from(text);
    REQUIRE(got);
    CHECK(got->function == tail.function);
    CHECK(got->flags == tail.flags);
    CHECK(got->remaining == tail.remaining);
    CHECK(got->order == tail.order);
    CHECK((text == counted(size)));
  }
  for (std::size_t size = 0; size < cluster::call_tail::size; ++size) {
    bytes text = counted(size);
    CHECK_FALSE(cluster::call_tail::take_from(text).has_value());
    CHECK((text == counted(size)));
  }
}
