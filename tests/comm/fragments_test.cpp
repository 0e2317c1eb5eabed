// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Messages in fragments without MPI: over networks that keep order, that do not, and that damage
// what they carry.
#include <cohort/comm/fragments.hpp>
#include <cohort/testing/network.hpp>

#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace {

using cohort::comm::message_assembly;
using cohort::comm::outgoing_message;
using cohort::testing::network_options;
using bytes = std::vector<std::byte>;

class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed) : next_(seed) {}
  std::size_t below(std::size_t bound) { return next_() % bound; }
  bool one_in(std::size_t times) { return below(times) == 0; }
  bytes text(std::size_t size) {
    bytes all(size);
    for (std::byte& each : all) each = static_cast<std::byte>(next_());
    return all;
  }

 private:
  std::mt19937_64 next_;
};

struct letter {
  unsigned kind = 0;
  bytes text;
  friend bool operator==(const letter&, const letter&) = default;
};

// In the first byte of a fragment.
constexpr unsigned goes_on = 1;
constexpr unsigned is_alone = 2;

constexpr unsigned kinds_in_between = 8;  // from 0 on; the others are not in between

/// What should come out of an assembly, told in another way: all of a message is kept as it came.
class assembly_model {
 public:
  explicit assembly_model(std::size_t longest) : longest_(longest) {}

  struct outcome {
    std::optional<letter> whole;
    std::string refused;
  };
  outcome take(const bytes& fragment) {
    if (refused_) return {{}, "a message after one that is none"};
    refused_ = true;  // unless it is seen to be right
    if (fragment.empty()) return {{}, "a message without a byte"};
    const unsigned head = std::to_integer<unsigned>(fragment[0]);
    letter one{head / 4, bytes(fragment.begin() + 1, fragment.end())};
    if (head % 4 >= is_alone) {
      if (one.text.size() > longest_) return {{}, "a message that is too long"};
      refused_ = false;
      return {std::move(one), {}};
    }
    parts_.push_back(one.text);
    bytes all;
    for (const bytes& part : parts_) all.insert(all.end(), part.begin(), part.end());
    if (all.size() > longest_) return {{}, "a message that is too long"};
    refused_ = false;
    if (head % 4 == goes_on) return {};
    parts_.clear();
    return {letter{one.kind, std::move(all)}, {}};
  }

 private:
  std::size_t longest_;
  std::vector<bytes> parts_;
  bool refused_ = false;
};

/// The receiver's side. It holds what an assembly says of any fragments against the model.
class checked_assembly {
 public:
  explicit checked_assembly(std::size_t longest)
      : longest_(longest), in_(longest), expected_(longest) {}

  void take(const bytes& fragment) {
    const auto come = in_.take(fragment);
    const assembly_model::outcome expected = expected_.take(fragment);
    const std::string refused = come.refused == nullptr ? "" : come.refused;
    const bool whole = come.refused == nullptr && come.whole;
    const bool bounded =
        come.bytes.size() <= longest_ && in_.kept() <= (refused.empty() ? 2 * longest_ : 0);
    if (!bounded || refused != expected.refused || whole != expected.whole.has_value()) {
      CAPTURE(come.bytes.size(), in_.kept(), longest_, refused, expected.refused, whole);
      FAIL("an assembly and its model differ");
    }
    if (come.refused != nullptr) {
      ++refusals;
      return;
    }
    if (!whole) return;
    letters.push_back({come.kind, bytes(come.bytes.begin(), come.bytes.end())});
    REQUIRE(letters.back() == *expected.whole);
  }
  std::vector<letter> letters;
  std::size_t refusals = 0;

 private:
  std::size_t longest_;
  message_assembly in_;
  assembly_model expected_;
};

struct correspondence_options {
  std::size_t fragment = 64;
  std::size_t longest = 100'000;
  std::size_t most_fragments = 6;  // of a message
  network_options carrier{};
};

/// Ranks that all send to each other, also to themselves.
class correspondence {
 public:
  correspondence(std::uint64_t seed, const correspondence_options& options)
      : options_(options), random_(seed), network_(2 + static_cast<int>(seed % 3), with(seed)) {
    for (int from = 0; from < network_.ranks(); ++from) {
      for (int to = 0; to < network_.ranks(); ++to) {
        links.emplace(std::pair(from, to), link(options_.longest));
      }
    }
  }

  struct link {
    explicit link(std::size_t longest) : in(longest) {}
    outgoing_message out;
    letter writes;             // what `out` has
    std::size_t left = 10;     // messages that are not begun
    std::vector<letter> sent;  // in the order of their last fragments
    checked_assembly in;
  };
  std::map<std::pair<int, int>, link> links;

  void run() {
    for (std::size_t open = links.size(); open != 0 || network_.in_flight() != 0;) {
      if (open != 0 && random_.below(2) == 0) {
        auto any =
            std::next(links.begin(), static_cast<std::ptrdiff_t>(random_.below(links.size())));
        open -= step(any->first, any->second) ? 1U : 0U;
      } else if (auto come = network_.deliver()) {
        links.at({come->from, come->to}).in.take(come->message);
      }
    }
  }

 private:
  [[nodiscard]] network_options with(std::uint64_t seed) const {
    network_options all = options_.carrier;
    all.seed = seed;
    return all;
  }
  /// Sends a fragment. Whether it was the last one of this link.
  bool step(std::pair<int, int> way, link& on) {
    if (on.left == 0 && on.out.all_taken()) return false;
    const std::size_t most = options_.fragment - 1;
    if (random_.one_in(5)) {
      bytes fragment;
      const letter one{static_cast<unsigned>(random_.below(kinds_in_between)),
                       random_.text(random_.below(most + 1))};
      outgoing_message::in_between(fragment, one.kind, one.text);
      network_.send(way.first, way.second, fragment);
      on.sent.push_back(one);
      return false;
    }
    if (on.out.all_taken()) {
      const std::size_t whole = random_.below(options_.most_fragments) * most;
      const std::size_t rest =
          random_.one_in(3) ? random_.below(2) * most : random_.below(most + 1);
      const auto kind = kinds_in_between + random_.below(64 - kinds_in_between);
      on.writes = {static_cast<unsigned>(kind), random_.text(whole + rest)};
      bytes& out = on.out.begin();
      out.insert(out.end(), on.writes.text.begin(), on.writes.text.end());
      on.out.finish(on.writes.kind);
      --on.left;
    }
    const auto fragment = on.out.next(options_.fragment);
    REQUIRE(fragment.size() <= options_.fragment);
    network_.send(way.first, way.second, bytes(fragment.begin(), fragment.end()));
    if (!on.out.all_taken()) return false;
    on.sent.push_back(on.writes);
    return on.left == 0;
  }

  correspondence_options options_;
  random_numbers random_;
  cohort::testing::network<bytes> network_;
};

bool contains(const std::vector<letter>& all, const letter& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// Kinds of network that break what fragments rely on.
const std::vector<network_options> bad_networks{
    {.drop = 0.1},
    {.duplicate = 0.2},
    {.overtaking = true},
    {.overtaking = true, .drop = 0.1, .duplicate = 0.2, .max_delay = 8}};

bytes fragment_of(unsigned head, std::size_t size) {
  bytes made(size + 1);
  made[0] = static_cast<std::byte>(head);
  return made;
}

}  // namespace

TEST_CASE("a carrier that keeps order delivers every message once, whole, and in its order") {
  constexpr std::size_t fragments[] = {2, 3, 16, 64, 500};
  for (std::uint64_t seed = 0; seed < 120; ++seed) {
    CAPTURE(seed);
    correspondence all(seed, {.fragment = fragments[seed % std::size(fragments)],
                              .carrier = {.max_delay = seed % 4}});
    all.run();
    for (auto& [way, on] : all.links) {
      CAPTURE(way.first, way.second);
      REQUIRE(on.in.refusals == 0);
      REQUIRE(on.in.letters == on.sent);
    }
  }
}

TEST_CASE("what is lost, comes twice or overtakes leaves messages in between as they were sent") {
  std::size_t spoilt = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    CAPTURE(seed);
    correspondence all(seed, {.fragment = 8, .longest = 40, .carrier = bad_networks[seed % 4]});
    all.run();
    for (auto& [way, on] : all.links) {
      CAPTURE(way.first, way.second);
      for (const letter& one : on.in.letters) {
        const bool as_sent = contains(on.sent, one);
        if (one.kind < kinds_in_between) REQUIRE(as_sent);
        spoilt += as_sent ? 0 : 1;
      }
      refused += on.in.refusals;
    }
  }
  // So the networks were as bad as they should be. Fragments have no numbers.
  CHECK(spoilt > 0);
  CHECK(refused > 0);
}

TEST_CASE("messages of one fragment come as they were sent, or not, whatever the carrier does") {
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    CAPTURE(seed);
    correspondence all(
        seed,
        {.fragment = 32, .longest = 31, .most_fragments = 1, .carrier = bad_networks[seed % 4]});
    all.run();
    for (auto& [way, on] : all.links) {
      CAPTURE(way.first, way.second);
      REQUIRE(on.in.refusals == 0);
      for (const letter& one : on.in.letters) REQUIRE(contains(on.sent, one));
    }
  }
}

TEST_CASE("any bytes are a message within the bound or are refused") {
  std::size_t whole = 0;
  std::size_t refused = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    CAPTURE(seed);
    random_numbers random(seed);
    const std::size_t longest = random.below(60);
    checked_assembly in(longest);
    outgoing_message out;
    for (int count = 0; count < 40; ++count) {
      if (out.all_taken()) {
        const bytes text = random.text(random.below(40));
        bytes& into = out.begin();
        into.insert(into.end(), text.begin(), text.end());
        out.finish(static_cast<unsigned>(random.below(64)));
      }
      const auto next = out.next(2 + random.below(16));
      bytes fragment(next.begin(), next.end());
      switch (random.below(12)) {
        case 0: {
          std::byte& any = fragment[random.below(fragment.size())];
          any ^= static_cast<std::byte>(1U << random.below(8));
          break;
        }
        case 1:
          fragment.resize(1 + random.below(fragment.size()));
          break;
        case 2:
          fragment = random.text(1 + random.below(20));
          break;
        case 3:
          if (random.one_in(4)) fragment.clear();
          break;
        default:
          break;
      }
      fragment.shrink_to_fit();  // a byte after its end is found by the address sanitizer
      in.take(fragment);
    }
    whole += in.letters.size();
    refused += in.refusals;
  }
  CHECK(whole > 1000);
  CHECK(refused > 1000);
}

TEST_CASE("a message may be as long as the bound, and the byte that is too much is refused") {
  const std::size_t first = GENERATE(0U, 1U, 99U, 100U);
  CAPTURE(first);
  message_assembly in(100);
  CHECK(in.take(fragment_of(0, 100)).whole);
  CHECK(in.take(fragment_of(is_alone, 100)).whole);
  const bytes begin = fragment_of(goes_on, first);
  CHECK(in.take(begin).bytes.size() == first);
  CHECK(in.take(fragment_of(is_alone, 100)).whole);  // has a bound of its own
  const bytes rest = fragment_of(0, 100 - first);
  const auto come = in.take(rest);
  CHECK(come.whole);
  CHECK(come.bytes.size() == 100);
  const unsigned last = GENERATE(0U, goes_on);
  CHECK(in.take(begin).refused == nullptr);
  CHECK(in.take(fragment_of(last, 101 - first)).refused ==
        std::string("a message that is too long"));
  CHECK(in.take(fragment_of(0, 1)).refused == std::string("a message after one that is none"));
  message_assembly other(100);
  CHECK(other.take(fragment_of(is_alone, 101)).refused ==
        std::string("a message that is too long"));
}

TEST_CASE("a message of one fragment is handed on without a copy, also in between") {
  message_assembly in(100);
  const bytes one = fragment_of(4 * 63, 100);
  const auto come = in.take(one);
  CHECK(come.bytes.data() == one.data() + 1);
  CHECK(come.kind == 63);
  const bytes begin = fragment_of(goes_on, 50);
  CHECK(!in.take(begin).whole);
  const bytes word = fragment_of(is_alone, 20);
  CHECK(in.take(word).bytes.data() == word.data() + 1);
  const bytes end = fragment_of(0, 50);
  CHECK(in.take(end).bytes.size() == 100);
}

TEST_CASE("an outgoing message tells how much of it has been taken") {
  outgoing_message out;
  CHECK(out.all_taken());
  bytes& text = out.begin();
  text.resize(text.size() + 10);
  out.finish(5);
  CHECK(out.size() == 11);
  CHECK(!out.all_taken());
  CHECK(out.next(6).size() == 6);  // all that it may
  CHECK(!out.all_taken());
  CHECK(out.next(6).size() == 6);
  CHECK(out.all_taken());
  out.lose();
  CHECK(!out.all_taken());
  static_cast<void>(out.begin());
  CHECK(out.all_taken());  // there is nothing of the next one yet
}
