// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What depends on the version of NCCL: all_to_all, gather and scatter as messages, and
/// options of communicators; and groups of messages that overlap in memory.

#include "gpu/nccl/support.hpp"
#include "support/caught.hpp"

#include <cohort/nccl/life/agreement.hpp>

#include <algorithm>

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::errc;

struct three_bytes {
  char a, b, c;
};

/// What ncclConfig_t has got in NCCL 2.29 and 2.30.
struct newer_config {
  int graphUsageMode = 0;
  int numRmaCtx = 3;
  int maxP2pPeers = 4;
  int graphStreamOrdering = 1;
};
struct older_config {};

}  // namespace

DOUBLE_TEST_CASE("before NCCL 2.28.3 all_to_all and gather and scatter are groups of messages") {
  const int version = GENERATE(21801, 22809);
  on_gpus([version](communicator world) -> asio::awaitable<void> {
    fake_nccl::set_version(version);
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    const std::size_t n = static_cast<std::size_t>(world.size());
    const int rank = world.rank();
    const int last = world.size() - 1;
    auto mine = co_await filled<int>(s, 3, rank + 1);
    device::vector<int> all(3 * n, s);
    co_await nccl::all_gather(gpus, s, mine, all);
    device::vector<int> swapped(3 * n, s);
    co_await nccl::all_to_all(gpus, s, all, swapped);
    auto got = co_await read(s, swapped);
    CHECK(got == std::vector<int>(3 * n, rank + 1));
    const std::vector<int> roots = {0, last};
    for (const int root : roots) {
      device::vector<int> rooted(rank == root ? 3 * n : 0, s);
      co_await nccl::gather(gpus, s, mine, rooted, root);
      if (rank == root) {
        auto gathered = co_await read(s, rooted);
        auto wanted = co_await read(s, all);
        CHECK(gathered == wanted);
      }
      auto part = co_await filled<int>(s, 3, 0);
      co_await nccl::scatter(gpus, s, rooted, part, root);
      auto scattered = co_await read(s, part);
      CHECK(scattered == std::vector<int>(3, rank + 1));
    }
    const three_bytes here{static_cast<char>(rank), 'b', 'c'};
    auto odd = co_await filled<three_bytes>(s, n, here);
    device::vector<three_bytes> moved(n, s);
    co_await nccl::all_to_all(gpus, s, odd, moved);
    auto bytes = co_await read(s, moved);
    for (std::size_t i = 0; i < n; ++i) CHECK(bytes[i].a == static_cast<char>(i));
    device::vector<int> nothing(0, s);
    device::vector<int> nor_here(0, s);
    co_await nccl::all_to_all(gpus, s, nothing, nor_here);

    const bool is_native = version >= 22803;
    CHECK((fake_nccl::calls("ncclAlltoAll") == 2) == is_native);
    CHECK((fake_nccl::calls("ncclAlltoAll") == 0) == !is_native);
    CHECK((fake_nccl::calls("ncclGather") == 0) == !is_native);
    CHECK((fake_nccl::calls("ncclScatter") == 0) == !is_native);
    CHECK((fake_nccl::calls("ncclSend") >= 2 * n) == !is_native);
    co_await meet(world);
  });
}

TEST_CASE("a field of ncclConfig_t that differs between the ranks is named") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const auto differs = [&](auto change) -> asio::awaitable<std::string> {
      nccl::communicator_options options;
      if (world.rank() == 1) change(options);
      auto making = nccl::make_communicator(world, options);
      auto failed = co_await caught<cohort::mismatch_error>(std::move(making));
      if (!failed) co_return "nothing";
      CHECK(failed->ranks() == std::vector<int>{0, 1});
      co_return failed->field() + ": " + failed->what();
    };
    using options = nccl::communicator_options;
    const auto check = [&](std::string text, const std::string& field, const std::string& values) {
      INFO(text);
      CHECK(text.find(field + ": ") == 0);
      CHECK(text.find(values) != std::string::npos);
    };
    const std::string seven = "rank 0 has none, rank 1 has 7";
    std::string text;
    text = co_await differs([](options& o) { o.config.cgaClusterSize = 7; });
    check(text, "config.cgaClusterSize", seven);
    text = co_await differs([](options& o) { o.config.minCTAs = 7; });
    check(text, "config.minCTAs", seven);
    text = co_await differs([](options& o) { o.config.maxCTAs = 7; });
    check(text, "config.maxCTAs", seven);
    text = co_await differs([](options& o) { o.config.netName = "Socket"; });
    check(text, "config.netName", "rank 0 has none");
    text = co_await differs([](options& o) { o.config.splitShare = 7; });
    check(text, "config.splitShare", seven);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 26, 2)
    text = co_await differs([](options& o) { o.config.trafficClass = 7; });
    check(text, "config.trafficClass", seven);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 3)
    text = co_await differs([](options& o) { o.config.collnetEnable = 7; });
    check(text, "config.collnetEnable", seven);
    text = co_await differs([](options& o) { o.config.CTAPolicy = 7; });
    check(text, "config.CTAPolicy", seven);
    text = co_await differs([](options& o) { o.config.shrinkShare = 7; });
    check(text, "config.shrinkShare", seven);
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 3)
    text = co_await differs([](options& o) { o.config.nChannelsPerNetPeer = 7; });
    check(text, "config.nChannelsPerNetPeer", seven);
    text = co_await differs([](options& o) { o.config.nvlinkCentricSched = 7; });
    check(text, "config.nvlinkCentricSched", seven);
#endif
    text = co_await differs([](options& o) { o.on_deadline = cohort::on_deadline::abort; });
    check(text, "on_deadline", "rank 1 has");
    CHECK_DOUBLE(fake_nccl::calls("ncclCommInitRankConfig") == 0);
  });
}

TEST_CASE("fields that only newer versions of ncclConfig_t have are compared where they are") {
  nccl::detail::config_values values{};
  values.fill(NCCL_CONFIG_UNDEF_INT);
  nccl::detail::add_newer_fields(older_config(), values);
  for (const auto one : values) CHECK(one == NCCL_CONFIG_UNDEF_INT);
  newer_config config;
  nccl::detail::add_newer_fields(config, values);
  const auto has = [&](const std::string& field, int value) {
    INFO(field);
    const auto& names = nccl::detail::config_names;
    const auto at = std::find(names.begin(), names.end(), field);
    REQUIRE(at != names.end());
    CHECK(values[static_cast<std::size_t>(at - names.begin())] == value);
  };
  has("config.graphUsageMode", 0);
  has("config.numRmaCtx", 3);
  has("config.maxP2pPeers", 4);
  has("config.graphStreamOrdering", 1);
  // A coordinator captures beside plain operations, which is mode 2.
  CHECK(nccl::detail::allows_graphs(older_config()));
  CHECK_FALSE(nccl::detail::allows_graphs(config));
  config.graphUsageMode = 1;
  CHECK_FALSE(nccl::detail::allows_graphs(config));
  config.graphUsageMode = 2;
  CHECK(nccl::detail::allows_graphs(config));
  config.graphUsageMode = NCCL_CONFIG_UNDEF_INT;
  CHECK(nccl::detail::allows_graphs(config));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 29, 2)
  nccl::communicator_options options;
  options.config.graphUsageMode = 1;
  CHECK_FALSE(nccl::detail::allows_graphs(options.config));
#endif
}

TEST_CASE("a group whose messages overlap in memory is refused by name") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const cohort::log::capture log;
    auto gpus = co_await nccl::make_communicator(world);
    const device::stream s;
    auto v = co_await filled<int>(s, 10, 1);
    auto w = co_await filled<int>(s, 10, 2);
    const device::span<int> all(v);
    const int right = right_of(world);
    const int left = left_of(world);
    auto both = nccl::group(gpus, s);
    both.send(w, right).send(all.subspan(0, 5), right).recv(all.subspan(4, 5), left);
    auto code = co_await code_of(both.run());
    CHECK(code == errc::invalid_argument);
    CHECK(log.contains("nccl group: send 1 and recv 2 overlap in memory"));
    auto twice = nccl::group(gpus, s);
    twice.recv(all, left).send(w, right).recv(all.subspan(9, 1), left);
    code = co_await code_of(twice.run());
    CHECK(code == errc::invalid_argument);
    CHECK(log.contains("nccl group: recv 0 and recv 2 overlap in memory"));
    auto inside = nccl::group(gpus, s);
    inside.send(all.subspan(0, 9), right).send(all.subspan(1, 2), right);
    inside.recv(all.subspan(5, 1), left);
    code = co_await code_of(inside.run());
    CHECK(code == errc::invalid_argument);
    CHECK(log.contains("nccl group: send 0 and recv 2 overlap in memory"));
    CHECK_DOUBLE(fake_nccl::launches().empty());
    // Messages that are sent may overlap, and neighbours do not.
    auto fitting = nccl::group(gpus, s);
    fitting.send(all.subspan(0, 4), right).send(all.subspan(2, 2), right);
    fitting.recv(all.subspan(4, 4), left).recv(all.subspan(8, 2), left);
    co_await fitting.run();
    auto got = co_await read(s, v);
    CHECK(got == std::vector<int>(10, 1));
  });
}
