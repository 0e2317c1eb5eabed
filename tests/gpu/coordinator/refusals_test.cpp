// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file What does not go together: coordinators with other backends for devices or with none, and
/// memory of the host and of devices.

#include "support.hpp"

namespace {

using namespace cohort_test;
using cohort::communicator;
using cohort::coordinator;
using cohort::errc;

template <class Buffer>
concept mpi_takes = cohort::input_buffer<Buffer> || cohort::output_buffer<Buffer>;
static_assert(mpi_takes<std::vector<float>&> && mpi_takes<std::vector<float>>);
static_assert(!mpi_takes<device::vector<float>&> && !mpi_takes<device::vector<float>> &&
              !mpi_takes<const device::vector<float>&>);

/// A backend with a name, facts and nothing else. On every rank NCCL's has the same name and the
/// same list of facts, and it rounds to 16 bits, so what is said of others needs another one.
class idle_backend final : public cohort::comm::device_backend {
 public:
  using call_type = cohort::comm::device_call;
  using facts_type = std::vector<std::pair<std::string, std::uint64_t>>;
  idle_backend(std::string name, facts_type facts)
      : name_(std::move(name)), facts_(std::move(facts)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return name_; }
  void facts(facts_type& all) const override { all = facts_; }
  void open(std::uint32_t, const communicator& over,
            std::function<void(std::exception_ptr)> done) override {
    asio::post(over.get_executor(), [done = std::move(done)] { done(nullptr); });
  }
  [[nodiscard]] std::string refuses(const call_type&) const override { return {}; }
  [[nodiscard]] std::shared_ptr<cohort::comm::device_mark> mark(
      std::span<const cohort::comm::device_buffer>, const cohort::stream_ref&) override {
    return nullptr;
  }
  void add_result(cohort::comm::device_mark&, const cohort::comm::device_buffer&) override {}
  void start(call_type&, cohort::comm::backend_completion) override {}
  void sizes_known(call_type&) override {}
  [[nodiscard]] cohort::comm::device_buffer keep(
      const cohort::comm::device_buffer& of, std::shared_ptr<cohort::comm::device_mark>&) override {
    return of;
  }
  bool deadline_passed(call_type&) override { return true; }
  void fail(std::error_code, const std::string&) override {}
  bool forget(const cohort::comm::request_operation&) override { return true; }
  void close(std::uint32_t) override {}

 private:
  std::string name_;
  facts_type facts_;
};

/// What a coordinator is given.
struct idle {
  std::string name = "idle";
  idle_backend::facts_type facts{{"version", 7}};
  [[nodiscard]] std::shared_ptr<cohort::comm::device_backend> make_device_backend() const {
    return std::make_shared<idle_backend>(name, facts);
  }
};

/// The error that every rank's coordinator ends with, where the last one has another backend.
asio::awaitable<cohort::mismatch_error> why_they_differ(coordinator coord) {
  const auto problem = co_await caught<cohort::mismatch_error>(coord.barrier());
  REQUIRE(problem);
  REQUIRE(problem->sides().size() == 2);
  CHECK(problem->sides().back().ranks == std::vector<int>{coord.size() - 1});
  co_return *problem;
}

}  // namespace

TEST_CASE("ranks with NCCL and without a backend for devices do not open") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    const bool has_none = world.rank() == world.size() - 1;
    auto coord = has_none ? coordinator(world) : coordinator(world, nccl::backend());
    const auto problem = co_await why_they_differ(coord);
    CHECK(problem.field() == "backend");
    CHECK(problem.sides().front().values.front() == "nccl");
    CHECK(problem.sides().back().values.front() == "none");
    auto again = co_await world.dup();
    coordinator fresh(again, nccl::backend());
    co_await sums(fresh, "anew");
    co_await fresh.shutdown();
  });
}

TEST_CASE("ranks with other options of NCCL's backend do not open, and these are told") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    nccl::backend_options options;
    options.pack_below = world.rank() == world.size() - 1 ? 8 : 4096;
    const auto problem = co_await why_they_differ(coordinator(world, nccl::backend(options)));
    CHECK(problem.fields() == std::vector<std::string>{"backend.pack_below"});
    CHECK(problem.sides().front().values == std::vector<std::string>{"4096"});
    CHECK(problem.sides().back().values == std::vector<std::string>{"8"});
  });
}

TEST_CASE("ranks with backends of other names or with other lists of facts do not open") {
  const std::string what = GENERATE(as<std::string>{}, "name", "facts");
  on_world([&](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    const cohort::log::capture log;
    idle backend;
    if (world.rank() == world.size() - 1) {
      if (what == "name") backend.name = "mock";
      if (what == "facts") backend.facts.emplace_back("more", 1);
    }
    const auto problem = co_await why_they_differ(coordinator(world, backend));
    if (what == "name") {
      CHECK(problem.field() == "backend");
      CHECK(problem.sides().front().values.front() == "idle");
      CHECK(problem.sides().back().values.front() == "mock");
    } else {  // whose values cannot be compared
      CHECK(problem.fields() == std::vector<std::string>{"facts of the backend"});
    }
  });
}

TEST_CASE("a coordinator without a backend takes no device memory, nor one that cannot round it") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    const device::stream on;
    auto values = co_await filled(on, 3, 1.0F);
    const std::string operation =
        "rank " + std::to_string(world.rank()) + ": all_reduce 'w' of float32 in device memory: ";
    int host = 1;
    {
      coordinator coord(world);
      const auto problem = co_await caught<cohort::error>(coord.all_reduce("w", values, op::sum));
      REQUIRE(problem);
      CHECK(problem->code() == errc::not_supported);
      CHECK(has(problem->what(), operation));
      CHECK(has(problem->what(), "no backend for devices"));
      co_await coord.all_reduce("host", host, op::sum);
      co_await coord.shutdown();
    }
    CHECK(host == world.size());
    auto again = co_await world.dup();
    coordinator coord(again, idle());
    const auto problem = co_await caught<cohort::error>(
        coord.all_reduce("w", values, op::sum, {.compression = cohort::compression::f16}));
    REQUIRE(problem);
    CHECK(problem->code() == errc::not_supported);
    CHECK(has(problem->what(), "its backend for devices rounds nothing to 16 bits"));
    co_await coord.shutdown();
  });
}

TEST_CASE("an Adasum by name is refused in device memory") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const device::stream on;
    auto data = co_await filled(on, 9, 1.0F);
    const auto refused = [](asio::awaitable<void> call) -> asio::awaitable<void> {
      const auto problem = co_await caught<cohort::error>(std::move(call));
      REQUIRE(problem);
      CAPTURE(problem->what());
      CHECK(problem->code() == errc::not_supported);
      CHECK(has(problem->what(), "'w' of float32 in device memory: "));
    };
    co_await refused(coord.all_reduce("w", data, op::adasum));
    co_await refused(coord.grouped_all_reduce(cohort::bundle("w").add("data", data), op::adasum));
    CHECK(co_await now_in(data) == std::vector<float>(9, 1.0F));
    co_await sums(coord, "after that");
    co_await coord.shutdown();
  });
}

TEST_CASE("what only devices have is refused over memory of the host") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    coordinator coord(world, nccl::backend());
    const device::stream on;
    std::vector<float> host(3);
    cohort::call_options options;
    options.ends = cohort::until::enqueued;
    CHECK(co_await code_of(coord.all_reduce("ends", host, op::sum, options)) ==
          errc::invalid_argument);
    options = {};
    options.on = on;
    CHECK(co_await code_of(coord.all_reduce("on", host, op::sum, options)) ==
          errc::invalid_argument);
    auto values = co_await filled(on, 3, 1.0F);
    cohort::bundle both("both");
    both.add("device", values);
    CHECK_THROWS_WITH(both.add("host", host),
                      Catch::Matchers::ContainsSubstring("'host' is in another memory space"));
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}

TEST_CASE("ranks that bring memory of the host and of a device do not match") {
  on_gpus([](communicator world) -> asio::awaitable<void> {
    if (world.size() < 2) co_return;
    coordinator coord(world, nccl::backend());
    const device::stream on;
    auto values = co_await filled(on, 3, 1.0F);
    std::vector<float> host(3);
    auto one = world.rank() == 0 ? coord.all_reduce("w", host, op::sum, cohort::as_future)
                                 : coord.all_reduce("w", values, op::sum, cohort::as_future);
    const auto problem = co_await caught<cohort::mismatch_error>(std::move(one));
    REQUIRE(problem);
    CHECK(problem->fields() == std::vector<std::string>{"memory"});
    REQUIRE(problem->sides().size() == 2);
    CHECK(problem->sides()[0].values != problem->sides()[1].values);
    CHECK(has(problem->what(), "device"));
    co_await sums(coord, "after");
    co_await coord.shutdown();
  });
}
