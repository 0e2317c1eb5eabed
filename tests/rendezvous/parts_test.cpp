// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The pure parts: keys and their text form, intervals, the table of one step, records.
#include <cohort/rendezvous/node/record.hpp>
#include <cohort/rendezvous/node/step_state.hpp>
#include <cohort/rendezvous/table.hpp>
#include <cohort/rendezvous/vocabulary.hpp>

#include <atomic>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/support.hpp"
#include "support/catch.hpp"

namespace {

using namespace rendezvous_test;
using cohort::parse_key;

struct pair_of_numbers {
  int a = 0;
  int b = 0;
};

struct one_hash {
  std::size_t operator()(const rendezvous_key&) const noexcept { return 7; }
};

std::exception_ptr aborted_by(errc code) {
  return std::make_exception_ptr(cohort::error(code, "by the test"));
}

}  // namespace

TEST_CASE("a key has a text form with five parts", "[rendezvous][key]") {
  const rendezvous_key key{.source = 3,
                           .source_incarnation = 0x12ab,
                           .destination = 1,
                           .name = "edge;7:%",
                           .frame = 2,
                           .iteration = 9};
  CHECK(to_string(key) == "3;00000000000012ab;1;edge%3b7%3a%25;2:9");
  CHECK(to_string(rendezvous_key{.name = "x"}) == "0;0000000000000000;0;x;0:0");
  const auto parsed = parse_key(to_string(key));
  REQUIRE(parsed);
  CHECK(parsed.key.view().finds_same(key));
  CHECK(parsed.key.view().source_incarnation == 0x12ab);
}

TEST_CASE("a text that is no key is refused with a reason", "[rendezvous][key]") {
  const char* wrong[] = {
      "",
      "1;2;3",
      "0;0000000000000000;0;0:0",      // four parts
      "0;0000000000000000;0;x;y;0:0",  // six
      ";0000000000000000;0;x;0:0",     // empty parts
      "0;;0;x;0:0",
      "0;0000000000000000;;x;0:0",
      "0;0000000000000000;0;;0:0",
      "0;0000000000000000;0;x;",
      "a;0000000000000000;0;x;0:0",
      "-1;0000000000000000;0;x;0:0",
      "99999999999;0000000000000000;0;x;0:0",
      "0;000000000000000;0;x;0:0",    // 15 digits
      "0;00000000000000000;0;x;0:0",  // 17
      "0;000000000000000g;0;x;0:0",
      "0;0000000000000000;0;x;0",
      "0;0000000000000000;0;x;0:",
      "0;0000000000000000;0;x;0:0:0",
      "0;0000000000000000;0;x;0:-1",
      "0;0000000000000000;0;x;0:99999999999999999999999",
      "0;0000000000000000;0;x:y;0:0",
      "0;0000000000000000;0;x%;0:0",
      "0;0000000000000000;0;x%2;0:0",
      "0;0000000000000000;0;x%g0;0:0",
      "0;0000000000000000;0;x;0:0 ",
  };
  for (const char* text : wrong) {
    INFO(text);
    const auto parsed = parse_key(text);
    CHECK_FALSE(parsed);
    CHECK(parsed.error == errc::invalid_argument);
    CHECK(std::string(parsed.why) != "");
  }
}

TEST_CASE("every key survives its text form", "[rendezvous][key]") {
  std::mt19937_64 random(11);
  for (int i = 0; i < 3000; ++i) {
    std::string name;
    for (std::size_t n = 1 + random() % 20; n != 0; --n) name += static_cast<char>(random() % 256);
    rendezvous_key key;
    key.source = static_cast<int>(random() % 2147483647);
    key.destination = static_cast<int>(random() % 5);
    key.source_incarnation = random();
    key.name = name;
    key.frame = random();
    key.iteration = random() >> (random() % 64);
    const auto parsed = parse_key(to_string(key));
    REQUIRE(parsed);
    REQUIRE(parsed.key.view().finds_same(key));
    REQUIRE(parsed.key.view().source_incarnation == key.source_incarnation);
  }
}

TEST_CASE("numbers that follow each other are one interval", "[rendezvous]") {
  meeting::interval_set<std::int64_t> set;
  std::set<std::int64_t> model;
  std::mt19937 random(5);
  for (int i = 0; i < 2000; ++i) {
    const std::int64_t number = static_cast<std::int64_t>(random() % 500) - 250;
    CHECK(set.insert(number) == model.insert(number).second);
  }
  std::size_t runs = 0;
  for (std::int64_t n = -252; n < 252; ++n) {
    CHECK(set.contains(n) == model.contains(n));
    runs += model.contains(n) && !model.contains(n - 1) ? 1 : 0;
  }
  CHECK(set.intervals() == runs);
  meeting::interval_set<std::int64_t> steps;
  for (std::int64_t step = 0; step < 100000; ++step) steps.insert(step);
  CHECK(steps.intervals() == 1);
  CHECK(steps.insert(INT64_MAX));
  CHECK(steps.insert(INT64_MIN));
  CHECK(steps.contains(INT64_MAX));
  CHECK_FALSE(steps.insert(INT64_MAX));
}

TEST_CASE("values and receives of a key meet in either order", "[rendezvous][table]") {
  meeting::table table;
  const auto key = key_of(0, 0, "a");
  probe<std::string> early;
  CHECK(table.receive(key, early).waits == 1);
  CHECK(early.waits());
  table.send(key, packet_of(std::string("first")));
  CHECK(early.ends == 1);
  CHECK(early.take() == "first");

  table.send(key, packet_of(std::string("second")));
  CHECK(table.own_values() == 1);
  probe<std::string> late;
  CHECK(table.receive(key, late).waits == 0);
  CHECK(late.take() == "second");
  CHECK(table.own_values() == 0);
  CHECK(table.list().empty());
}

TEST_CASE("values of one key are first in, first out", "[rendezvous][table]") {
  meeting::table table;
  const auto key = key_of(0, 0, "many");
  constexpr int count = 10000;
  for (int i = 0; i < count; ++i) table.send(key, packet_of(i));
  std::vector<std::unique_ptr<probe<int>>> all;
  for (int i = 0; i < count; ++i) {
    probe<int> one;
    table.receive(key, one);
    if (one.take() != i) FAIL("value " << i);
  }
  for (int i = 0; i < count; ++i) {
    all.push_back(std::make_unique<probe<int>>());
    table.receive(key, *all.back());
  }
  for (int i = 0; i < count; ++i) table.send(key, packet_of(i));
  for (int i = 0; i < count; ++i) {
    if (all[static_cast<std::size_t>(i)]->take() != i) FAIL("receive " << i);
  }
}

TEST_CASE("two keys of one hash are two keys", "[rendezvous][table]") {
  meeting::basic_table<one_hash> table;
  table.send(key_of(0, 0, "a"), packet_of(1));
  table.send(key_of(0, 0, "b"), packet_of(2));
  table.send(key_of(0, 0, "a", 1), packet_of(3));
  rendezvous_key framed = key_of(0, 0, "a");
  framed.frame = 1;
  table.send(framed, packet_of(4));
  probe<int> b, a, framed_one, iterated;
  table.receive(key_of(0, 0, "b"), b);
  table.receive(framed, framed_one);
  table.receive(key_of(0, 0, "a", 1), iterated);
  table.receive(key_of(0, 0, "a"), a);
  CHECK(b.take() == 2);
  CHECK(framed_one.take() == 4);
  CHECK(iterated.take() == 3);
  CHECK(a.take() == 1);
  rendezvous_key other = key_of(0, 0, "a");
  other.source_incarnation = 17;  // compared by the layer above
  table.send(other, packet_of(5));
  probe<int> same;
  table.receive(key_of(0, 0, "a"), same);
  CHECK(same.take() == 5);
}

TEST_CASE("a table copies the name", "[rendezvous][table]") {
  meeting::table table;
  {
    std::string name(100, 'n');
    table.send(key_of(0, 0, name), packet_of(1));
    name.assign(100, 'm');
  }
  probe<int> one;
  table.receive(key_of(0, 0, std::string(100, 'n')), one);
  CHECK(one.take() == 1);
}

TEST_CASE("dead travels alone or with a value", "[rendezvous][table]") {
  meeting::table table;
  const auto key = key_of(0, 0, "branch");
  table.send(key, meeting::dead_packet());
  table.send(key, packet_of(5, true));
  probe<int> alone, both;
  table.receive(key, alone);
  table.receive(key, both);
  CHECK(alone.is_dead());
  CHECK_FALSE(alone.take());
  CHECK(both.is_dead());
  CHECK(both.take() == 5);
}

TEST_CASE("a value of another type is an error of the receive and stays", "[rendezvous][table]") {
  meeting::table table;
  const auto key = key_of(0, 0, "typed");
  table.send(key, packet_of(2.5));
  probe<int> wrong;
  table.receive(key, wrong);
  CHECK(wrong.code() == errc::type_mismatch);
  CHECK_THAT(wrong.what(), Catch::Matchers::ContainsSubstring("double") &&
                               Catch::Matchers::ContainsSubstring("int") &&
                               Catch::Matchers::ContainsSubstring("typed"));
  probe<double> right;
  table.receive(key, right);
  CHECK(right.take() == 2.5);

  probe<int> waits_wrong;
  probe<double> waits_right;
  table.receive(key, waits_wrong);
  table.receive(key, waits_right);
  table.send(key, packet_of(3.5));
  CHECK(waits_wrong.code() == errc::type_mismatch);
  CHECK(waits_right.take() == 3.5);

  probe<std::vector<int>> small;
  small.room = 8;
  table.send(key, packet_of(std::vector<int>{1, 2, 3}));
  table.receive(key, small);
  CHECK(small.code() == errc::message_too_long);
  CHECK(table.own_values() == 1);
}

TEST_CASE("cancelling two of four receives leaves the others in order", "[rendezvous][table]") {
  meeting::table table;
  const auto key = key_of(0, 0, "c");
  probe<int> r[4];
  for (auto& one : r) table.receive(key, one);
  CHECK(table.cancel(r[1], aborted_by(errc::closed)));
  CHECK(table.cancel(r[2], aborted_by(errc::closed)));
  CHECK_FALSE(table.cancel(r[2], aborted_by(errc::closed)));
  table.send(key, packet_of(10));
  table.send(key, packet_of(11));
  CHECK(r[0].take() == 10);
  CHECK(r[3].take() == 11);
  CHECK(r[1].code() == errc::closed);
  CHECK(r[1].ends == 1);
  CHECK_FALSE(table.cancel(r[0], aborted_by(errc::closed)));  // after delivery: no effect
  CHECK(r[0].ends == 1);
  CHECK(table.list().empty());
}

TEST_CASE("an ended table ends all operations with its error", "[rendezvous][table]") {
  meeting::table table;
  const auto key = key_of(0, 0, "e");
  probe<int> before;
  table.receive(key, before);
  table.send(key_of(0, 0, "dropped"), packet_of(1));
  table.end(aborted_by(errc::closed), true);
  CHECK(before.code() == errc::closed);
  probe<int> after;
  table.receive(key, after);
  CHECK(after.code() == errc::closed);
  // A root cause replaces an error that was only derived, and nothing replaces that.
  table.end(aborted_by(errc::stalled), false);
  table.end(aborted_by(errc::bad_rank), false);
  table.end(aborted_by(errc::closed), true);
  probe<int> last;
  table.receive(key, last);
  CHECK(last.code() == errc::stalled);
  std::error_code thrown;
  try {
    table.send(key, packet_of(1));
  } catch (const std::system_error& problem) {
    thrown = problem.code();
  }
  CHECK(thrown == errc::stalled);
}

TEST_CASE("under single use the second send and the second receive are errors",
          "[rendezvous][table]") {
  meeting::table table(true);
  const auto key = key_of(0, 0, "once");
  const auto code_of_send = [&] {
    try {
      table.send(key, packet_of(1));
    } catch (const std::system_error& problem) {
      return problem.code();
    }
    return std::error_code();
  };
  probe<int> waiter, duplicate_waiter, serial;
  table.receive(key, waiter);
  table.receive(key, duplicate_waiter);
  CHECK(duplicate_waiter.code() == errc::duplicate_key);
  CHECK_FALSE(code_of_send());
  CHECK(waiter.take() == 1);
  table.receive(key, serial);
  CHECK(serial.code() == errc::duplicate_key);
  CHECK(code_of_send() == errc::duplicate_key);
}

TEST_CASE("a hundred keys meet in random order", "[rendezvous][table]") {
  meeting::table table;
  std::mt19937 random(3);
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) order.push_back(i);
  std::shuffle(order.begin(), order.end(), random);
  std::vector<std::unique_ptr<probe<int>>> all(100);
  for (const int what : order) {
    const int n = what % 100;
    const std::string name = "key" + std::to_string(n);
    if (what < 100) {
      table.send(key_of(0, 0, name), packet_of(n));
    } else {
      auto& one = all[static_cast<std::size_t>(n)] = std::make_unique<probe<int>>();
      table.receive(key_of(0, 0, name), *one);
    }
  }
  for (int n = 0; n < 100; ++n) CHECK(all[static_cast<std::size_t>(n)]->take() == n);
}

TEST_CASE("sends, receives, cancellations and the end race and nothing is lost or ends twice",
          "[rendezvous][table][threads]") {
  constexpr int rounds = 100000;
  constexpr int batch = 50;
  std::atomic<int> turn{0};
  std::unique_ptr<meeting::table> table;
  std::vector<std::unique_ptr<probe<int>>> all;
  std::atomic<int> arrived{0};
  const auto wait_for = [&](int value) {
    while (turn.load(std::memory_order_acquire) < value) std::this_thread::yield();
  };
  int delivered = 0;
  int failed = 0;
  int kept = 0;
  // One thread receives and cancels, one sends, one ends the table in every fourth batch.
  std::thread sender([&] {
    for (int round = 1; round <= rounds / batch; ++round) {
      wait_for(round);
      for (int i = 0; i < batch; ++i) {
        try {
          table->send(key_of(0, 0, "race"), packet_of(i));
        } catch (const std::system_error&) {
          break;
        }
      }
      arrived.fetch_add(1);
    }
  });
  std::thread ender([&] {
    for (int round = 1; round <= rounds / batch; ++round) {
      wait_for(round);
      if (round % 4 == 0) table->end(aborted_by(errc::stalled), false, round % 8 == 0);
      arrived.fetch_add(1);
    }
  });
  for (int round = 1; round <= rounds / batch; ++round) {
    table = std::make_unique<meeting::table>();
    all.clear();
    arrived = 0;
    turn.store(round, std::memory_order_release);
    int cancelled = 0;
    for (int i = 0; i < batch; ++i) {
      all.push_back(std::make_unique<probe<int>>());
      table->receive(key_of(0, 0, "race"), *all.back());
      if (i % 3 == 0 &&
          table->cancel(*all[static_cast<std::size_t>(i / 2)], aborted_by(errc::closed))) {
        ++cancelled;
      }
    }
    while (arrived.load() != 2) std::this_thread::yield();
    const bool was_ended = round % 4 == 0;
    if (!was_ended) kept += static_cast<int>(table->own_values());
    int last = -1;
    int got = 0;
    int waiting = 0;
    const int failed_before = failed;
    for (const auto& one : all) {
      if (one->ends > 1) FAIL("a receive has ended twice");
      if (one->ends == 0) {
        ++waiting;
      } else if (one->error) {
        ++failed;
      } else {
        ++got;
        const int value = *one->take();
        if (value <= last) FAIL("out of order");
        last = value;
      }
    }
    delivered += got;
    if (!was_ended && failed - failed_before != cancelled) FAIL("a cancellation is lost");
    if (was_ended && waiting != 0) FAIL("a receive waits in a table that has ended");
    if (!was_ended && got + static_cast<int>(table->own_values()) != batch) FAIL("a value is lost");
    table->end(aborted_by(errc::closed), true);
  }
  sender.join();
  ender.join();
  CHECK(delivered > 0);
  CHECK(failed > 0);
  INFO(kept);
}

TEST_CASE("a reason for leaving comes back, and a longer one than there are is no record",
          "[rendezvous][message]") {
  using cohort::longest_reason;
  for (const std::size_t length : {std::size_t{0}, longest_reason, longest_reason + 1}) {
    const std::string why(length, 'w');
    std::vector<std::byte> message;
    cohort::wire::writer out(message);
    put(out, meeting::record{.kind = meeting::record_kind::refusal,
                             .id = 7,
                             .why = meeting::reason::left,
                             .cause = {{}, 0, why}});
    cohort::wire::reader in(message);
    const auto back = meeting::get_record(in);
    REQUIRE(in.ok() == (length <= longest_reason));
    if (!in.ok()) {
      CHECK(meeting::explain_record(message).starts_with("field 'cause' of a record 'refusal'"));
      continue;
    }
    CHECK(in.left() == 0);
    CHECK(back.why == meeting::reason::left);
    CHECK(back.cause.text == why);
  }
}

TEST_CASE("records come back as they were written", "[rendezvous][message]") {
  using meeting::record_kind;
  const std::vector<std::byte> content(8, std::byte{9});
  for (int kind = 1; kind <= static_cast<int>(meeting::last_record_kind); ++kind) {
    meeting::record one;
    one.kind = static_cast<record_kind>(kind);
    one.step = -5;
    one.name = "name";
    one.frame = 1;
    one.iteration = UINT64_MAX;
    one.incarnation = 77;
    one.number = 300;
    one.id = 1U << 20U;
    one.type = 12345;
    one.dead = true;
    one.size = 99;
    one.credit = 4;
    one.why = meeting::reason::aborted;
    one.cause = {"generic", -3, "why"};
    one.bytes = content;
    std::vector<std::byte> message;
    cohort::wire::writer out(message);
    put(out, one);
    cohort::wire::reader in(message);
    const auto back = meeting::get_record(in);
    INFO(kind);
    REQUIRE(in.ok());
    CHECK(in.left() == 0);
    CHECK(back.kind == one.kind);
    std::vector<std::byte> again;
    cohort::wire::writer second(again);
    put(second, back);
    CHECK(again == message);
    for (std::size_t length = 0; length < message.size(); ++length) {  // every truncation
      cohort::wire::reader part(std::span<const std::byte>(message).first(length));
      static_cast<void>(meeting::get_record(part));
      CHECK_FALSE(part.ok());
      CHECK_THAT(meeting::explain_record(std::span<const std::byte>(message).first(length)),
                 Catch::Matchers::StartsWith("field '"));
    }
  }
  for (const int bad : {0, static_cast<int>(meeting::last_record_kind) + 1, 255}) {
    const std::vector<std::byte> message(40, static_cast<std::byte>(bad));
    cohort::wire::reader in(message);
    static_cast<void>(meeting::get_record(in));
    CHECK_FALSE(in.ok());
  }
}

TEST_CASE("values of every kind become packets and come back", "[rendezvous]") {
  const auto round_trip = [](auto value) {
    using type = decltype(value);
    for (const bool remote : {false, true}) {
      const auto object = meeting::make_packet(value, false, remote);
      CHECK(object->type == meeting::type_id<type>());
      auto encoded = object->encode();
      const auto travelled =
          meeting::bytes_packet(object->type, false, encoded ? encoded->bytes() : object->bytes());
      auto copy = meeting::bytes_packet(travelled.type, false, travelled.bytes());
      CHECK(meeting::take_value<type>(copy) == value);
      CHECK(meeting::take_value<type>(*object) == value);
    }
  };
  round_trip(42);
  round_trip(1.5);
  round_trip(std::string("text"));
  round_trip(std::vector<float>(100, 2.F));
  round_trip(std::vector<std::string>{"a", "b"});
  round_trip(std::array<int, 3>{1, 2, 3});
  round_trip(std::vector<bool>{true, false});
  round_trip(std::pair<int, std::string>{1, "x"});
  round_trip(std::optional<double>(2.5));

  const pair_of_numbers both{1, 2};
  auto packet = meeting::make_packet(both, false, false);
  CHECK(meeting::take_value<pair_of_numbers>(*packet).b == 2);
  const int numbers[3] = {1, 2, 3};
  packet = meeting::make_packet(std::span<const int>(numbers), false, false);
  CHECK(meeting::take_value<std::vector<int>>(*packet) == std::vector<int>{1, 2, 3});
  packet = meeting::make_packet("literal", false, false);
  CHECK(meeting::take_value<std::string>(*packet) == "literal");
  const auto shared = std::make_shared<const std::vector<int>>(3, 7);
  packet = meeting::make_packet(shared, false, false);
  CHECK(packet->bytes().data() == reinterpret_cast<const std::byte*>(shared->data()));
  CHECK(meeting::take_value<std::vector<int>>(*packet) == *shared);
  std::vector<int> moved(10, 3);
  const auto* where = moved.data();
  packet = meeting::make_packet(std::move(moved), false, false);
  CHECK(meeting::take_value<std::vector<int>>(*packet).data() == where);

  meeting::bytes_packet odd(meeting::type_id<std::vector<int>>(), false, std::vector<std::byte>(5));
  CHECK_THROWS_AS(meeting::take_value<std::vector<int>>(odd), std::system_error);
  CHECK_THROWS_AS(meeting::take_value<double>(odd), std::system_error);
  CHECK_THROWS_AS(meeting::take_value<std::vector<std::string>>(odd), std::system_error);
}
