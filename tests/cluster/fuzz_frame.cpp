// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Fuzz target of what reaches a manager or a worker before anything is known of the sender: frames
// cut anywhere, the handshake, and the first messages. The first byte says which. Built with clang;
// libFuzzer's options are the program's:
//
//   cluster_fuzz_frame -max_total_time=600 tests/cluster/frame_corpus
//
// With --corpus FOLDER it writes good inputs there, to begin with.

#include <cohort/cluster/link/handshake.hpp>
#include <cohort/cluster/link/message.hpp>
#include <cohort/core/function_table.hpp>
#include <cohort/core/wire.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/fuzz_corpus.hpp"

namespace {

namespace cluster = cohort::cluster;
using bytes = std::vector<std::byte>;
using view = std::span<const std::byte>;
using table = std::vector<cohort::function_table::entry>;

constexpr std::size_t most = 200;  // bytes of a message, so that some are too long

void require(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

struct seen {
  std::vector<cluster::message> messages;
  bool fine = true;
  bool idle = true;
};

/// Feeds in pieces whose sizes `cuts` gives, over and over; in one piece if it gives none. With
/// `rooms` what of a piece has a place of its own is written there.
seen read_frames(view stream, view cuts, std::size_t stop_after, bool rooms = false) {
  cluster::frame_reader reader(most);
  const std::size_t arrived = stream.size();
  seen all;
  const auto sink = [&](cluster::message&& each) {
    require(each.size() <= most, "a message above the limit");
    require(!each.oversize || each.size() == 0, "bytes of one that is too long");
    require(each.bytes.capacity() <= std::max(most, 2 * arrived), "memory that did not arrive");
    for (const auto& one : each.attachments) {
      require(!one->bytes().empty() && one->bytes().size() <= arrived, "bytes that did not arrive");
    }
    all.messages.push_back(std::move(each));
    return all.messages.size() < stop_after;
  };
  for (std::size_t i = 0; all.fine && !stream.empty(); ++i) {
    const std::size_t size =
        cuts.empty() ? stream.size()
                     : std::min(stream.size(), std::to_integer<std::size_t>(cuts[i % cuts.size()]));
    const auto room = rooms ? reader.room(1) : std::span<std::byte>();
    const std::size_t in_room = std::min(room.size(), size);
    std::copy_n(stream.begin(), in_room, room.begin());
    all.fine = reader.feed(stream.first(size).subspan(in_room), sink, in_room);
    stream = stream.subspan(size);
  }
  all.idle = reader.idle();
  return all;
}

bool same(const std::vector<cluster::attachment_ptr>& a,
          const std::vector<cluster::attachment_ptr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& two) {
    return one->number() == two->number() && std::ranges::equal(one->bytes(), two->bytes());
  });
}

void check_same(const seen& whole, const seen& cut) {
  require(whole.fine == cut.fine, "the end depends on the cuts");
  require(whole.messages.size() == cut.messages.size(), "the messages depend on the cuts");
  if (whole.fine) require(whole.idle == cut.idle, "what is left depends on the cuts");
  for (std::size_t i = 0; i < whole.messages.size(); ++i) {
    const cluster::message& a = whole.messages[i];
    const cluster::message& b = cut.messages[i];
    require(a.kind == b.kind && a.id == b.id && a.bytes == b.bytes &&
                same(a.attachments, b.attachments) && a.oversize == b.oversize,
            "a message depends on the cuts");
    require(a.kind >= cluster::message_kind::identity && a.kind <= cluster::last_message_kind,
            "a kind that does not exist");
  }
}

/// One byte: how many cuts; the cuts; the stream.
void frames(view in) {
  if (in.empty()) return;
  const std::size_t count = std::min(std::to_integer<std::size_t>(in[0]) % 16, in.size() - 1);
  view cuts = in.subspan(1, count);
  const view stream = in.subspan(1 + count);
  const auto zero = [](std::byte each) { return each == std::byte{0}; };
  if (std::all_of(cuts.begin(), cuts.end(), zero)) cuts = {};
  const std::size_t stop_after = in[0] >= std::byte{0xf0} ? 2 : stream.size() + 1;
  const seen whole = read_frames(stream, {}, stop_after);
  check_same(whole, read_frames(stream, cuts, stop_after));
  check_same(whole, read_frames(stream, cuts, stop_after, true));
}

void head(view in) {
  cluster::frame_head_bytes text;
  if (in.size() < text.size()) return;
  std::memcpy(text.data(), in.data(), text.size());
  cluster::frame_head made;
  if (!cluster::decode_frame_head(text, made)) return;
  require(cluster::encode_frame_head(made) == text, "two encodings of one head");
}

void handshake(view in) {
  static const cluster::launch_token token = cohort::random_bytes<16>();
  cluster::greeting_bytes hello{};
  cluster::reply_bytes reply{};
  cluster::proof_bytes proof{};
  std::memcpy(hello.data(), in.data(), std::min(in.size(), hello.size()));
  in = in.subspan(std::min(in.size(), hello.size()));
  std::memcpy(proof.data(), in.data(), std::min(in.size(), proof.size()));
  std::memcpy(reply.data(), in.data(), std::min(in.size(), reply.size()));
  cluster::accepting_side side;
  if (side.understands(hello)) {
    require(side.hello().purpose >= cluster::purpose::control &&
                side.hello().purpose <= cluster::purpose::heartbeat,
            "a purpose that does not exist");
    static_cast<void>(side.reply(token));
    require(!side.trusts(token, proof), "a proof without the token");
    const cluster::connecting_side other(token, side.hello());
    require(!other.trusts(reply), "a reply without the token");
  }
  cluster::launch_token read;
  const std::string_view text(reinterpret_cast<const char*>(hello.data()), 32);
  if (cluster::parse_token(text, read)) {
    require(cluster::to_text(read) == text, "two texts of one token");
  }
}

/// What decodes must decode to the same after it has been encoded again.
template <class T, class Equal>
void value(view in, Equal equal) {
  cohort::wire::reader reader(in);
  T once;
  reader.get(once);
  if (!reader.ok()) return;
  const bytes again = cohort::wire::encode(once);
  cohort::wire::reader second(again);
  T twice;
  second.get(twice);
  require(second.ok() && second.left() == 0 && equal(once, twice), "not the same again");
}

void tail(view in) {
  bytes message(in.begin(), in.end());
  const auto got = cluster::call_tail::take_from(message);
  require(got.has_value() == (in.size() >= cluster::call_tail::size), "the size of a tail");
  if (!got) return;
  got->append_to(message);
  require(std::equal(message.begin(), message.end(), in.begin(), in.end()), "another tail");
}

void one_input(view in) {
  if (in.empty()) return;
  const view rest = in.subspan(1);
  switch (std::to_integer<unsigned>(in[0]) % 8) {
    case 0:
    case 1:
      return frames(rest);
    case 2:
      return head(rest);
    case 3:
      return handshake(rest);
    case 4:
      return value<cluster::identity>(
          rest, [](const cluster::identity& a, const cluster::identity& b) {
            return a.program == b.program && a.table == b.table && a.host == b.host &&
                   a.machine == b.machine && a.pid == b.pid && a.rank == b.rank;
          });
    case 5:
      value<cluster::welcome>(rest, [](const cluster::welcome& a, const cluster::welcome& b) {
        return a.heartbeat == b.heartbeat && a.heartbeat_patience == b.heartbeat_patience;
      });
      return value<cluster::started>(rest,
                                     [](const cluster::started& a, const cluster::started& b) {
                                       return a.rank == b.rank && a.size == b.size;
                                     });
    case 6:
      return value<table>(rest, [](const table& a, const table& b) { return a == b; });
    default:
      return tail(rest);
  }
}

void write_corpus(const std::string& folder) {
  cohort_test::corpus_writer write(folder + "/frame");
  bytes stream;
  const auto add = [&](cluster::message_kind kind, std::uint64_t id, std::uint32_t size,
                       bool last) {
    const auto text = cluster::encode_frame_head({size, kind, last, id});
    stream.insert(stream.end(), text.begin(), text.end());
    stream.insert(stream.end(), size, std::byte{42});
  };
  using cluster::message_kind;
  add(message_kind::call, 1, 5, true);
  add(message_kind::cancel, 1, 0, true);
  write({0, 0}, stream);
  write({0, 3, 1, 7, 20}, stream);
  stream.clear();
  add(message_kind::call, 1, 9, false);
  add(message_kind::result, 2, 4, false);
  add(message_kind::call, 1, 3, false);
  add(message_kind::result, 2, 0, true);
  add(message_kind::call, 1, 1, true);
  write({0, 1, 10}, stream);
  write({0, 0xf1, 10}, stream);
  stream.clear();
  add(message_kind::result, 3, 150, false);
  add(message_kind::cancel, 7, 0, true);
  add(message_kind::result, 3, 60, true);
  write({0, 2, 255, 1}, stream);
  stream.clear();
  for (std::uint64_t id = 0; id < 17; ++id) add(message_kind::call, id, 1, false);
  write({0, 1, 33}, stream);
  cluster::payload two(bytes(7, std::byte{1}));
  two.attachments.push_back(cluster::attachment_of<std::vector<double>>::sent({1, 2, 3}));
  two.attachments.push_back(cluster::attachment_of<std::string>::sent("a text"));
  cluster::attachment_table::append_to(two);
  for (const std::uint32_t frame : {30U, 9U}) {
    stream.clear();
    const auto text = cluster::encode_frame_head(
        {static_cast<std::uint32_t>(two.bytes.size()), message_kind::call, false, 1, true});
    stream.insert(stream.end(), text.begin(), text.end());
    stream.insert(stream.end(), two.bytes.begin(), two.bytes.end());
    for (std::uint32_t left = 30; left != 0; left -= std::min(left, frame)) {
      add(message_kind::call, 1, std::min(left, frame), left <= frame);
    }
    write({0, 0}, stream);
    write({0, 3, 1, 7, 20}, stream);
  }
  stream.clear();
  add(message_kind::finish, 7, 0, true);
  write({2}, stream);
  const cluster::launch_token token{};
  cluster::greeting hello;
  hello.purpose = cluster::purpose::control;
  const cluster::connecting_side side(token, hello);
  bytes greeting(side.greeting().begin(), side.greeting().end());
  greeting.resize(128);
  write({3}, greeting);
  cluster::identity who;
  who.program = "program";
  who.host = "host";
  who.pid = 17;
  write({4}, cohort::wire::encode(who));
  write({5}, cohort::wire::encode(cluster::started{1, 4}));
  table entries(2);
  entries[0].module = "module";
  entries[1].signature = "int ()";
  entries[1].offset = 4711;
  write({6}, cohort::wire::encode(entries));
  bytes arguments(3);
  cluster::call_tail().append_to(arguments);
  write({7}, arguments);
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  return cohort_test::write_corpus_if_asked(*argc, *argv, write_corpus);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  one_input(std::span(reinterpret_cast<const std::byte*>(data), size));
  return 0;
}
