// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

// Objects in the place of buffers: send, recv and broadcast of cohort::serialized.

#include <cohort/collectives.hpp>
#include <cohort/core/wire_std.hpp>
#include <cohort/p2p.hpp>
#include <cohort/progress/when_all.hpp>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "p2p/support.hpp"
#include "support/catch.hpp"

namespace p2p_serialized_test {

using namespace p2p_test;
using cohort::as_future;
using cohort::errc;
using cohort::serialized;

struct settings {
  std::string title;
  std::map<std::string, std::vector<double>> weights;
  std::optional<int> seed;
  friend bool operator==(const settings&, const settings&) = default;
};
settings settings_of(int rank) {
  settings result{"rank " + std::to_string(rank), {}, std::nullopt};
  if (rank % 2 == 0) result.seed = rank;
  for (int i = 0; i <= rank; ++i) result.weights[std::to_string(i)].assign(10, i + 0.5);
  return result;
}

/// Of the same fields as far as bytes go, and another type.
struct label {
  std::string text;
};

/// Cannot be serialized, or read, when it is told so.
struct moody {
  int when = 0;  // 1: no bytes are made of it; 2: none are read
};
template <class Archive>
void wire_fields(Archive& archive, moody& value) {
  if (!Archive::reads && value.when == 1) throw std::runtime_error("not today");
  archive(value.when);
  if (Archive::reads && value.when == 2) throw std::runtime_error("not now");
}

/// What a rank may not be able to hold.
struct not_default {
  explicit not_default(int) {}
};
template <class T>
concept serialized_fits = requires(T& object) { serialized(object); };
static_assert(serialized_fits<settings> && serialized_fits<const settings>);
static_assert(serialized_fits<std::variant<int, std::string>> && !serialized_fits<not_default>);
template <class Object>
concept receives = requires(communicator world, Object& object) {
  {
    cohort::recv(world, serialized(object), 0, 0)
  } -> std::same_as<asio::awaitable<cohort::status>>;
};
static_assert(receives<settings>);

std::string failure_of(const communicator& world) { return world.last_failure().text; }
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Sends bytes as they are.
task send_bytes(communicator world, std::vector<std::byte> bytes, int to, int tag) {
  co_await cohort::send(world, std::move(bytes), to, tag);
}

}  // namespace p2p_serialized_test

using namespace p2p_serialized_test;

TEST_CASE("an object arrives whose size the receiver does not know") {
  on_world([](communicator world) -> task {
    settings out = settings_of(world.rank());
    auto sent = cohort::send(world, serialized(out), right_of(world), 3, as_future);
    out = {};  // has been read
    settings in;
    const cohort::status st = co_await cohort::recv(world, serialized(in), left_of(world), 3);
    co_await std::move(sent);
    CHECK(in == settings_of(left_of(world)));
    CHECK(st.source() == left_of(world));
    CHECK(st.tag() == 3);

    co_await cohort::send(world, serialized(out), cohort::no_rank, 3);
    co_await cohort::recv(world, serialized(in), cohort::no_rank, 3);
    CHECK(in == settings_of(left_of(world)));
  });
}

TEST_CASE("strings, maps, variants, scalars, temporaries and const objects are sent") {
  on_world([](communicator world) -> task {
    const std::string text(1000, 'a' + static_cast<char>(world.rank()));
    const std::string expected(1000, 'a' + static_cast<char>(left_of(world)));
    const int to = right_of(world);
    const int from = left_of(world);
    auto first = cohort::send(world, serialized(text), to, 1, as_future);
    auto second =
        cohort::send(world, serialized(std::map<int, int>{{1, 2}, {3, 4}}), to, 1, as_future);
    auto third =
        cohort::send(world, serialized(std::variant<int, std::string>(text)), to, 1, as_future);
    auto fourth =
        cohort::send<cohort::send_mode::synchronous>(world, serialized(7), to, 1, as_future);
    std::string in = "before";
    co_await cohort::recv(world, serialized(in), from, 1);
    CHECK(in == expected);
    std::map<int, int> map{{9, 9}};
    co_await cohort::recv(world, serialized(map), from, 1);
    CHECK(map == std::map<int, int>{{1, 2}, {3, 4}});
    std::variant<int, std::string> either;
    co_await cohort::recv(world, serialized(either), cohort::any_source, 1);
    CHECK(std::get<1>(either) == expected);
    int number = 0;
    co_await cohort::recv(world, serialized(number), from, cohort::any_tag);
    CHECK(number == 7);
    co_await cohort::when_all(std::move(first), std::move(second), std::move(third),
                              std::move(fourth));
  });
}

TEST_CASE("a large object goes from rank to rank and to all") {
  on_world([](communicator world) -> task {
    std::vector<std::string> big;
    std::optional<cohort::future<>> sent;
    if (world.rank() == 0) {
      for (int i = 0; i < 20000; ++i) big.push_back(std::string(200, 'x') + std::to_string(i));
      sent.emplace(cohort::send(world, serialized(big), 0, 2, as_future));
    }
    co_await cohort::broadcast(world, serialized(big), 0);
    REQUIRE(big.size() == 20000);
    CHECK(big.back() == std::string(200, 'x') + "19999");
    if (world.rank() == 0) {
      std::vector<std::string> again;
      co_await cohort::recv(world, serialized(again), 0, 2);
      CHECK(again == big);
      co_await std::move(*sent);
    }
  });
}

TEST_CASE("bytes of no object, of another type, and damaged ones are errors with their facts") {
  on_world([](communicator world) -> task {
    const int self = world.rank();
    const auto refuses = [&](auto sent, std::error_code expected) -> task {
      settings in = settings_of(5);
      const std::error_code found = co_await code_of(cohort::recv(world, serialized(in), self, 4));
      CHECK(found == expected);
      CHECK(in == settings_of(5));
      const std::string text = failure_of(world);
      CHECK(has(text, "source=" + std::to_string(self)));
      CHECK(has(text, "message.bytes="));
      CHECK(has(text, "settings"));
      co_await std::move(sent);
    };
    const auto bytes_to_self = [&](std::vector<std::byte> bytes) {
      return asio::co_spawn(world.get_executor(), send_bytes(world, std::move(bytes), self, 4),
                            as_future);
    };
    co_await refuses(bytes_to_self({}), errc::type_mismatch);
    co_await refuses(bytes_to_self(std::vector<std::byte>(3)), errc::type_mismatch);
    co_await refuses(bytes_to_self(std::vector<std::byte>(5000, std::byte{0xA5})),
                     errc::type_mismatch);
    const label other{"rank"};
    co_await refuses(cohort::send(world, serialized(other), self, 4, as_future),
                     errc::type_mismatch);

    // Cut off anywhere, too long, and with each byte changed: an error or another object, no crash.
    const std::vector<std::byte> whole = cohort::comm::encode_object(settings_of(3));
    for (std::size_t length = 8; length < whole.size(); length += 7) {
      auto part = whole;
      part.resize(length);
      auto sent = bytes_to_self(part);
      settings in;
      const auto found = co_await code_of(cohort::recv(world, serialized(in), self, 4));
      CHECK(found.category() == cohort::wire_category());
      co_await std::move(sent);
    }
    auto longer = whole;
    longer.push_back(std::byte{1});
    co_await refuses(bytes_to_self(longer), cohort::wire_errc::trailing);
    for (std::size_t at = 8; at < whole.size(); at += 5) {
      auto changed = whole;
      changed[at] ^= std::byte{0xFF};
      auto sent = bytes_to_self(changed);
      settings in;
      const auto found = co_await code_of(cohort::recv(world, serialized(in), self, 4));
      CHECK((!found || found.category() == cohort::wire_category()));
      co_await std::move(sent);
    }
  });
}

TEST_CASE("an object above the limit is refused, and the next one received") {
  on_world([](communicator world) -> task {
    const int self = world.rank();
    std::string in = "before";
    auto large = cohort::send(world, serialized(std::string(100000, 'x')), self, 1, as_future);
    auto small = cohort::send(world, serialized(std::string("small")), self, 1, as_future);
    const auto refused = co_await code_of(cohort::recv(world, serialized(in, 1000), self, 1));
    CHECK(refused == errc::message_too_long);
    CHECK(in == "before");
    CHECK(has(failure_of(world), "limit=1000"));
    co_await cohort::recv(world, serialized(in, 1000), self, 1);
    CHECK(in == "small");
    co_await std::move(large);
    co_await std::move(small);
  });
}

TEST_CASE("what an object throws leaves the send, and is an error of the receive") {
  on_world([](communicator world) -> task {
    const int self = world.rank();
    CHECK_THROWS_AS(cohort::send(world, serialized(moody{1}), self, 1), std::runtime_error);
    auto sent = cohort::send(world, serialized(moody{2}), self, 1, as_future);
    moody in;
    const auto thrown = co_await code_of(cohort::recv(world, serialized(in), self, 1));
    CHECK(thrown == cohort::wire_errc::bad_value);
    CHECK(in.when == 0);
    CHECK(has(failure_of(world), "not now"));
    co_await std::move(sent);
  });
}

TEST_CASE("misuse of messages of objects completes with its code") {
  on_world([](communicator world) -> task {
    int number = 1;
    const auto no_rank = co_await code_of(cohort::send(world, serialized(number), world.size(), 1));
    CHECK(no_rank == errc::bad_rank);
    const auto no_tag = co_await code_of(cohort::recv(world, serialized(number), 0, -7));
    CHECK(no_tag == errc::bad_tag);
    co_await cohort::send(world, serialized(number), cohort::no_rank, 1);
  });
}

TEST_CASE("a receive of an object that is cancelled leaves the next message alone") {
  on_world([](communicator world) -> task {
    std::string in = "before";
    auto waiting = cohort::recv(world, serialized(in), world.rank(), 6, as_future);
    waiting.cancel(asio::cancellation_type::total);
    const auto aborted = co_await code_of(std::move(waiting));
    CHECK(aborted == asio::error::operation_aborted);
    auto sent = cohort::send(world, serialized(std::string("after")), world.rank(), 6, as_future);
    CHECK(in == "before");
    co_await cohort::recv(world, serialized(in), world.rank(), 6);
    CHECK(in == "after");
    co_await std::move(sent);
  });
}

TEST_CASE("a broadcast gives every rank the object of the root") {
  on_world([](communicator world) -> task {
    for (int root = 0; root < world.size(); ++root) {
      settings object = settings_of(world.rank());
      co_await cohort::broadcast(world, serialized(object), root);
      CHECK(object == settings_of(root));
    }
    // In the order of their start, with a collective of numbers between.
    std::string first = std::to_string(world.rank());
    int sum = 1;
    std::map<int, std::string> second;
    if (world.rank() == 0) second[1] = "one";
    auto a = cohort::broadcast(world, serialized(first), 0, as_future);
    auto b = cohort::all_reduce(world, sum, cohort::op::sum, as_future);
    auto c = cohort::broadcast(world, serialized(second), static_cast<long>(0), as_future);
    co_await cohort::when_all(std::move(a), std::move(b), std::move(c));
    CHECK(first == "0");
    CHECK(sum == world.size());
    CHECK(second[1] == "one");
    const auto no_root = co_await code_of(cohort::broadcast(world, serialized(sum), world.size()));
    CHECK(no_root == errc::bad_root);
  });
}

TEST_CASE("a rank that cannot take a broadcast object fails alone") {
  on_world([](communicator world) -> task {
    const int last = world.size() - 1;
    const bool refuses = world.rank() == last && last != 0;
    std::string object = world.rank() == 0 ? std::string(5000, 'x') : "before";
    const auto found =
        co_await code_of(cohort::broadcast(world, serialized(object, refuses ? 100 : 10000), 0));
    CHECK(found == (refuses ? make_error_code(errc::message_too_long) : std::error_code()));
    CHECK(object == (refuses ? "before" : std::string(5000, 'x')));

    // Another type, which only MPI's own broadcast would not notice.
    if (refuses) {
      label other{"before"};
      const auto other_type = co_await code_of(cohort::broadcast(world, serialized(other), 0));
      CHECK(other_type == errc::type_mismatch);
      CHECK(other.text == "before");
    } else {
      std::string text = world.rank() == 0 ? "text" : "";
      co_await cohort::broadcast(world, serialized(text), 0);
      CHECK(text == "text");
    }
    co_await cohort::barrier(world);
  });
}

TEST_CASE("a root that cannot serialize its object fails on all ranks, and nobody hangs") {
  on_world([](communicator world) -> task {
    moody object{world.rank() == 0 ? 1 : 5};
    const auto found = co_await code_of(cohort::broadcast(world, serialized(object), 0));
    const std::string text = failure_of(world);
    if (world.rank() == 0) {
      CHECK(found == errc::invalid_argument);
      CHECK(has(text, "not today"));
    } else {
      CHECK(found == errc::remote);
      CHECK(has(text, "root"));
      CHECK(object.when == 5);
    }
    object.when = 3;
    co_await cohort::broadcast(world, serialized(object), 0);
    CHECK(object.when == 3);
  });
}

TEST_CASE("a broadcast of an object that was let go of leaves it alone") {
  on_world([](communicator world) -> task {
    auto object = std::make_unique<std::string>(world.rank() == 0 ? "root's" : "before");
    auto waiting = cohort::broadcast(world, serialized(*object), 0, as_future);
    waiting.cancel(asio::cancellation_type::terminal);
    const auto found = co_await code_of(std::move(waiting));
    CHECK((!found || found == asio::error::operation_aborted));
    if (found) CHECK(*object == (world.rank() == 0 ? "root's" : "before"));
    object.reset();  // a sanitizer would see a late write
    co_await cohort::barrier(world);
  });
}

TEST_CASE("with checks between ranks, objects and buffers are told apart") {
  cohort::communicator_options options;
  options.checks = cohort::checks::cross_rank;
  on_world(
      [](communicator world) -> task {
        std::string text = world.rank() == 0 ? "text" : "";
        co_await cohort::broadcast(world, serialized(text), 0);
        CHECK(text == "text");
        if (world.size() == 1) co_return;
        int number = 1;
        std::error_code found;
        if (world.rank() == 0) {
          found = co_await code_of(cohort::broadcast(world, serialized(number), 0));
        } else {
          found = co_await code_of(cohort::broadcast(world, number, 0));
        }
        CHECK(found == errc::cross_rank_mismatch);
      },
      options);
}
