// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0

/// \file The backend of a coordinator by itself: calls as the coordinator makes them.

#include "support.hpp"

#include <cohort/core/element.hpp>
#include <cohort/mpi/element_kernels.hpp>
#include <cohort/nccl/backend.hpp>
#include <cohort/nccl/extra/captured_graph.hpp>

#include <deque>

using namespace cohort_test;
namespace comm = cohort::comm;
using cohort::op_kind;
using cohort::reduction_code;

namespace {

/// Waits for one operation, as a lane of the coordinator does.
class waiter final : public comm::request_operation {
 public:
  waiter() : request_operation(&run) {}
  bool over = false;

 private:
  static void run(operation* base, action) { static_cast<waiter*>(base)->over = true; }
};

/// A coordinator that has elected what the test wants.
class elector {
 public:
  explicit elector(cohort::communicator over, const nccl::backend_options& options = {})
      : world(std::move(over)), backend(nccl::backend(options).make_device_backend()) {}
  ~elector() { backend->close(0); }
  elector(const elector&) = delete;

  void open() { open(0, world); }
  asio::awaitable<void> opens() {
    open();
    auto is_open = soon([this] { return opened; });
    const bool did = co_await std::move(is_open);
    CHECK(did);
  }
  void open(std::uint32_t set, const cohort::communicator& over) {
    opened = false;
    const comm::request_source::guard hold(world.state()->source);
    backend->open(set, over, [this](std::exception_ptr why) {
      opened = true;
      failed = std::move(why);
    });
  }
  void reserve(std::uint32_t set) {
    const comm::request_source::guard hold(world.state()->source);
    backend->reserve(set);
  }
  void close(std::uint32_t set) {
    const comm::request_source::guard hold(world.state()->source);
    backend->close(set);
  }
  struct pending {
    comm::device_call call;
    waiter done;
  };
  pending& start(comm::device_call call) {
    pending& made = all.emplace_back();
    made.call = std::move(call);
    made.call.sequence = all.size();
    const comm::request_source::guard hold(world.state()->source);
    backend->start(made.call, comm::backend_completion(world.state()->engine, made.done));
    return made;
  }
  void sized(pending& one) {
    const comm::request_source::guard hold(world.state()->source);
    backend->sizes_known(one.call);
  }
  template <class T>
  std::shared_ptr<comm::device_mark> mark(device::vector<T>& buffer,
                                          const cohort::stream_ref& on = {}) {
    const comm::device_buffer one{"buffer", buffer.data(), buffer.bytes(),
                                  cohort::memory_traits<device::vector<T>>::locate(buffer),
                                  buffer.lease()};
    return backend->mark(std::span(&one, 1), on);
  }

  cohort::communicator world;
  std::shared_ptr<comm::device_backend> backend;
  std::deque<pending> all;  // addresses stay good
  bool opened = false;
  std::exception_ptr failed;
};

template <class T>
comm::tensor tensor_of(const void* in, void* out, std::size_t count, int ranks) {
  comm::tensor made;
  made.in = in;
  made.out = out;
  made.count = count;
  made.kernels = &cohort::mpi::kernels_of<T>;
  made.divisor = ranks;
  return made;
}

comm::device_call call_of(op_kind kind, reduction_code reduction = reduction_code::no_reduction,
                          int root = 0) {
  comm::device_call made;
  made.kind = kind;
  made.reduction = reduction;
  made.root = root;
  made.verb = "elected";
  return made;
}

/// A sum in place.
comm::device_call sum_of(elector& all, device::vector<float>& values, int ranks = 1) {
  auto made = call_of(op_kind::all_reduce, reduction_code::sum);
  made.tensors.push_back(tensor_of<float>(values.data(), values.data(), values.size(), ranks));
  made.marks.push_back(all.mark(values));
  return made;
}

}  // namespace

TEST_CASE("packs of small tensors and large ones are reduced together") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    nccl::backend_options options;
    options.pack_below = 4096;
    elector all(world, options);
    all.open();
    const int ranks = world.size();
    device::stream on;
    std::vector<device::vector<float>> buffers;
    for (int round = 0; round < 3; ++round) {  // before and after the communicator is made
      auto call = call_of(op_kind::all_reduce, reduction_code::sum);
      for (std::size_t i = 0; i < 20; ++i) {
        const std::size_t size = i % 7 == 3 ? 5000 : 1 + 13 * i;  // every seventh is large
        buffers.push_back(co_await filled(on, size, static_cast<float>(world.rank() + 1)));
        call.marks.push_back(all.mark(buffers.back()));
        call.tensors.push_back(
            tensor_of<float>(buffers.back().data(), buffers.back().data(), size, ranks));
      }
      all.start(std::move(call));
    }
    CHECK(co_await soon([&] { return all.all.back().done.over; }));
    for (const auto& each : all.all) CHECK(!each.done.failed());
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    for (const auto& each : buffers) {
      const auto values = co_await now_in(each);
      CHECK(values == std::vector<float>(each.size(), sum));
    }
  });
}

TEST_CASE("what NCCL cannot reduce is finished by the host in the order of the stream") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    all.open();
    const int ranks = world.size();
    device::stream on;
    // An average of integers to which one rank fewer brings data than there are.
    const bool brings = ranks == 1 || world.rank() != 0;
    const int active = std::max(ranks - 1, 1);
    auto numbers = co_await filled(on, 100000, std::int32_t{-7 - world.rank()});
    auto call = call_of(op_kind::all_reduce, reduction_code::average);
    call.tensors.push_back(
        tensor_of<std::int32_t>(numbers.data(), numbers.data(), numbers.size(), active));
    call.tensors.back().all_bring = ranks == 1;
    if (brings) {
      call.marks.push_back(all.mark(numbers));
    } else {
      call.tensors.back().in = nullptr;
      call.tensors.back().out = nullptr;
    }
    auto& first = all.start(std::move(call));

    // A largest value with factors, to which that rank brings nothing either; two, so they travel
    // together.
    auto a = co_await filled(on, 1000, static_cast<double>(-1 - world.rank()));
    auto b = co_await filled(on, 3, static_cast<double>(-10 * (world.rank() + 1)));
    auto scaled = call_of(op_kind::all_reduce, reduction_code::max);
    for (auto* each : {&a, &b}) {
      scaled.tensors.push_back(tensor_of<double>(each->data(), each->data(), each->size(), active));
      scaled.tensors.back().prescale = 2;
      scaled.tensors.back().postscale = 0.5;
      if (brings) {
        scaled.marks.push_back(all.mark(*each));
      } else {
        scaled.tensors.back().in = nullptr;
        scaled.tensors.back().out = nullptr;
      }
    }
    auto& second = all.start(std::move(scaled));
    CHECK(co_await soon([&] { return first.done.over && second.done.over; }));
    CHECK(!first.done.failed());
    CHECK(!second.done.failed());
    if (!brings) co_return;
    std::int32_t sum = 0;
    for (int rank = ranks == 1 ? 0 : 1; rank < ranks; ++rank) sum += -7 - rank;
    const auto averages = co_await now_in(numbers);
    CHECK(averages == std::vector<std::int32_t>(numbers.size(), sum / active));
    const double smallest_rank = ranks == 1 ? 1 : 2;
    CHECK(co_await now_in(a) == std::vector<double>(a.size(), -smallest_rank));
    CHECK(co_await now_in(b) == std::vector<double>(b.size(), -10 * smallest_rank));
  });
}

TEST_CASE("a broadcast of many tensors writes what the other ranks have") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    all.open();
    const int root = world.size() - 1;
    device::stream on;
    auto a = co_await filled(on, 77, static_cast<std::int16_t>(world.rank()));
    auto b = co_await filled(on, 5, static_cast<double>(world.rank()));
    auto call = call_of(op_kind::broadcast, reduction_code::no_reduction, root);
    call.tensors.push_back(tensor_of<std::int16_t>(a.data(), a.data(), a.size(), 1));
    call.tensors.push_back(tensor_of<double>(b.data(), b.data(), b.size(), 1));
    call.marks.push_back(all.mark(a));
    call.marks.push_back(all.mark(b));
    auto& one = all.start(std::move(call));
    CHECK(co_await soon([&] { return one.done.over; }));
    CHECK(!one.done.failed());
    CHECK(co_await now_in(a) ==
          std::vector<std::int16_t>(a.size(), static_cast<std::int16_t>(root)));
    CHECK(co_await now_in(b) == std::vector<double>(b.size(), root));
  });
}

TEST_CASE("an operation whose sizes are not known yet holds those behind it") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    all.open();
    const auto ranks = static_cast<std::size_t>(world.size());
    const auto rank = static_cast<std::size_t>(world.rank());
    device::stream on;
    // Rank r brings r + 1 elements; where there is one rank all are equal.
    auto mine = co_await filled(on, rank + 1, static_cast<std::int32_t>(rank));
    std::size_t total = ranks * (ranks + 1) / 2;
    device::vector<std::int32_t> result(total, on);
    auto call = call_of(op_kind::all_gather);
    call.sized = false;
    call.tensors.push_back(tensor_of<std::int32_t>(mine.data(), result.data(), mine.size(), 1));
    call.marks.push_back(all.mark(mine));
    auto& gather = all.start(std::move(call));

    auto values = co_await filled(on, 10, 1.0F);
    auto& after = all.start(sum_of(all, values));
    // The communicator is there, and still nothing goes on.
    CHECK(co_await soon([&] { return all.opened; }));
    co_await pause(20ms);
    CHECK_FALSE(after.done.over);
    gather.call.sent = {mine.bytes()};
    for (std::size_t i = 0; i < ranks; ++i) gather.call.received.push_back(4 * (i + 1));
    all.sized(gather);
    CHECK(co_await soon([&] { return gather.done.over && after.done.over; }));
    CHECK(!gather.done.failed());
    std::vector<std::int32_t> wanted;
    for (std::size_t i = 0; i < ranks; ++i) wanted.insert(wanted.end(), i + 1, static_cast<int>(i));
    CHECK(co_await now_in(result) == wanted);
    CHECK(co_await now_in(values) == std::vector<float>(10, static_cast<float>(ranks)));
  });
}

// Otherwise a rank where the sizes are known late would wait for the others in NCCL's init, and
// they for it in the operation.
TEST_CASE("a set is opened after what was started before it, on all ranks") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    auto members = co_await world.dup();
    elector all(world);
    co_await all.opens();
    const auto ranks = static_cast<std::size_t>(world.size());
    device::stream on;
    auto mine = co_await filled(on, 3, static_cast<std::int32_t>(world.rank()));
    device::vector<std::int32_t> result(3 * ranks, on);
    auto call = call_of(op_kind::all_gather);
    call.tensors.push_back(tensor_of<std::int32_t>(mine.data(), result.data(), mine.size(), 1));
    call.marks.push_back(all.mark(mine));
    call.sent = {mine.bytes()};
    call.received.assign(ranks, mine.bytes());
    const bool late = world.rank() == 0;
    call.sized = !late;
    auto& gather = all.start(std::move(call));
    all.open(1, members);

    auto values = co_await filled(on, 10, 1.0F);
    auto behind = sum_of(all, values);
    behind.set = 1;
    auto& after = all.start(std::move(behind));
    co_await pause(30ms);
    CHECK((!late || !all.opened));
    if (late) all.sized(gather);
    CHECK(co_await soon([&] { return gather.done.over && after.done.over; }));
    CHECK(!gather.done.failed());
    CHECK(!after.done.failed());
    CHECK(all.opened);
    CHECK(co_await now_in(values) == std::vector<float>(10, static_cast<float>(ranks)));
    co_await meet(world);
  });
}

TEST_CASE("what is started behind the place of a set waits for it, however late that is opened") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    auto members = co_await world.dup();
    elector all(world);
    co_await all.opens();
    const device::stream on;
    auto values = co_await filled(on, 10, 1.0F);
    const auto sum = [&]() -> elector::pending& { return all.start(sum_of(all, values)); };
    // The others are in NCCL's init of the set, and would not come into a sum before it.
    const bool late = world.rank() == 0;
    all.reserve(1);
    if (!late) all.open(1, members);
    auto& behind = sum();
    co_await pause(30ms);
    CHECK(!behind.done.over);
    co_await meet(world);  // all have seen it
    if (late) all.open(1, members);
    CHECK(co_await soon([&] { return behind.done.over && all.opened; }));
    CHECK(!behind.done.failed());
    CHECK(all.failed == nullptr);

    all.reserve(2);  // of a set that could not be made
    auto& further = sum();
    co_await pause(10ms);
    CHECK(!further.done.over);
    all.close(2);
    CHECK(co_await soon([&] { return further.done.over; }));
    CHECK(!further.done.failed());
    const auto ranks = static_cast<float>(world.size());
    CHECK(co_await now_in(values) == std::vector<float>(10, ranks * ranks));
    co_await meet(world);
  });
}

TEST_CASE("memory of packs that are being filled is kept when their operations fail") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    if (world.size() == 1) co_return;  // everything is launched at once
    elector all(world);
    co_await all.opens();
    const device::stream late;
    const device::stream on;
    std::vector<device::vector<float>> buffers;
    for (int i = 0; i < 4; ++i) buffers.push_back(co_await filled(on, 1000, 1.0F));
    co_await meet(world);
    held_stream held(late);
    // The first is not launched, because rank 0 does not call it; the second is only packed. Both
    // packs wait for `late`.
    for (std::size_t i = 0; i < 4 && world.rank() != 0; i += 2) {
      auto call = call_of(op_kind::all_reduce, reduction_code::sum);
      for (device::vector<float>* each : {&buffers[i], &buffers[i + 1]}) {
        call.marks.push_back(all.mark(*each, late));
        call.tensors.push_back(tensor_of<float>(each->data(), each->data(), each->size(), 1));
      }
      all.start(std::move(call));
    }
    co_await pause(20ms);
    {
      const comm::request_source::guard hold(world.state()->source);
      all.backend->fail(cohort::errc::aborted, "a test");
    }
    CHECK(co_await soon([&] {
      return std::all_of(all.all.begin(), all.all.end(),
                         [](const auto& each) { return each.done.over; });
    }));
    buffers.clear();
    auto freed = device::done(on);
    co_await std::move(freed);
    held.let_go();
    auto copied = device::done(late);
    co_await std::move(copied);
    co_await pause(20ms);
    const auto again = co_await filled(on, 10, 2.0F);
    CHECK(co_await now_in(again) == std::vector<float>(10, 2.0F));
    co_await meet(world);
  });
}

TEST_CASE("the memory of a graph is there before a replay, and goes after it") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    co_await all.opens();
    const device::stream on;
    auto a = co_await filled(on, 1000, 1.0F);
    auto b = co_await filled(on, 10, 1.0F);
    const auto graph = all.backend->make_graph("step");
    const device::stream stream = static_cast<nccl::captured_calls&>(*graph).stream;
    const auto step = [&](comm::device_use use) {
      auto call = call_of(op_kind::all_reduce, reduction_code::sum);
      for (device::vector<float>* each : {&a, &b}) {
        if (use == comm::device_use::capture) call.marks.push_back(all.mark(*each));
        call.tensors.push_back(tensor_of<float>(each->data(), each->data(), each->size(), 1));
      }
      call.use = use;
      call.graph = graph;
      return call;
    };
    {
      held_stream held(stream);  // nothing is allocated there before it is let go
      auto& capture = all.start(step(comm::device_use::capture));
      co_await pause(50ms);
      CHECK(!capture.done.over);
      held.let_go();
      CHECK(co_await soon([&] { return capture.done.over; }));
      CHECK(!capture.done.failed());
    }
    co_await meet(world);
    const device::stream domain =
        asio::use_service<nccl::issue_source>(world.get_executor().context()).domain_of(0);
    {
      held_stream held(domain);
      auto& replay = all.start(step(comm::device_use::replay));
      co_await pause(50ms);  // it is launched
      CHECK(!replay.done.over);
      CHECK(cudaStreamQuery(stream.get()) == cudaErrorNotReady);
      static_cast<void>(cudaGetLastError());
      held.let_go();
      CHECK(co_await soon([&] { return replay.done.over; }));
      CHECK(!replay.done.failed());
    }
    const auto ranks = static_cast<float>(world.size());
    CHECK(co_await now_in(a) == std::vector<float>(1000, ranks));
    CHECK(co_await now_in(b) == std::vector<float>(10, ranks));
    co_await meet(world);
  });
}

// A rank gives up an operation that the others may elect still, and its caller goes on.
TEST_CASE("what is kept of an operation comes before what its streams are given later") {
  const bool by_option = GENERATE(false, true);  // the memory has no stream, the operation has
  on_gpus([by_option](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    co_await all.opens();
    const device::stream on;
    const device::stream late;
    auto values = co_await filled(on, 1000, 1.0F);
    comm::device_buffer buffer{"buffer", values.data(), values.bytes(),
                               cohort::memory_traits<device::vector<float>>::locate(values),
                               values.lease()};
    if (by_option) buffer.where.producer = nullptr;
    held_stream held(late);
    auto mark = all.backend->mark(std::span(&buffer, 1), cohort::stream_ref(late));
    const comm::device_buffer kept = all.backend->keep(buffer, mark);
    const auto copying = device::stream::borrow(
        static_cast<cudaStream_t>(const_cast<void*>(kept.where.producer)), 0);
    held_stream held_too(copying);
    device::fill(by_option ? late : on, values, 2.0F);
    held.let_go();
    co_await pause(20ms);
    held_too.let_go();
    const device::vector<float> seen(1000, copying);
    CHECK(cudaMemcpyAsync(const_cast<float*>(seen.data()), kept.data, kept.bytes,
                          cudaMemcpyDeviceToDevice, copying.get()) == cudaSuccess);
    CHECK(co_await now_in(seen) == std::vector<float>(1000, 1.0F));
    auto filling = device::done(late);
    co_await std::move(filling);
    CHECK(co_await now_in(values) == std::vector<float>(1000, 2.0F));
    co_await meet(world);
  });
}

TEST_CASE("memory that no stream is ordered with is not kept") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    co_await all.opens();
    const device::stream on;
    auto values = co_await filled(on, 10, 1.0F);
    const comm::device_buffer buffer{
        "input", values.data(), values.bytes(), {cohort::memory_space::device, 0, nullptr}, {}};
    auto mark = all.backend->mark(std::span(&buffer, 1), {});
    try {
      static_cast<void>(all.backend->keep(buffer, mark));
      FAIL_CHECK("it was kept");
    } catch (const cohort::error& problem) {
      CHECK(problem.code() == cohort::errc::not_supported);
      CHECK(std::string(problem.what()).find("input: ") != std::string::npos);
    }
    co_await meet(world);
  });
}

TEST_CASE("every kind of operation brings the right data") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    all.open();
    const int ranks = world.size();
    const auto n = static_cast<std::size_t>(ranks);
    const int rank = world.rank();
    const int root = ranks / 2;
    device::stream on;
    const auto host =
        [&](std::vector<std::int32_t> values) -> asio::awaitable<device::vector<std::int32_t>> {
      device::pinned_vector<std::int32_t> staged(values.size(), on);
      std::copy(values.begin(), values.end(), staged.begin());
      device::vector<std::int32_t> made(values.size(), on);
      device::copy(on, staged, made);
      auto done = device::done(on);
      co_await std::move(done);
      co_return made;
    };
    // reduce
    auto reduced = co_await filled(on, 9, std::int32_t{rank + 1});
    auto call = call_of(op_kind::reduce, reduction_code::product, root);
    call.tensors.push_back(tensor_of<std::int32_t>(reduced.data(), reduced.data(), 9, ranks));
    call.marks.push_back(all.mark(reduced));
    all.start(std::move(call));
    // reduce_scatter of parts of two sizes, and of equal ones
    std::vector<device::vector<std::int32_t>> scattered;
    std::vector<device::vector<std::int32_t>> inputs;
    for (const std::size_t count : {n * 3 + 1, n * 4}) {
      std::vector<std::int32_t> values(count);
      for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::int32_t>(i) * (rank + 1);
      auto making = host(values);
      inputs.push_back(co_await std::move(making));
      scattered.emplace_back(count / n + (static_cast<std::size_t>(rank) < count % n ? 1 : 0), on);
      auto scatter = call_of(op_kind::reduce_scatter, reduction_code::sum);
      scatter.tensors.push_back(
          tensor_of<std::int32_t>(inputs.back().data(), scattered.back().data(), count, ranks));
      scatter.marks.push_back(all.mark(inputs.back()));
      scatter.marks.push_back(all.mark(scattered.back()));
      all.start(std::move(scatter));
    }
    // all_to_all: rank r sends to p what is r * 10 + p, p + 1 times
    std::vector<std::int32_t> parts;
    std::vector<std::size_t> sent;
    for (int peer = 0; peer < ranks; ++peer) {
      parts.insert(parts.end(), static_cast<std::size_t>(peer) + 1, rank * 10 + peer);
      sent.push_back(4 * (static_cast<std::size_t>(peer) + 1));
    }
    auto making = host(parts);
    auto exchanged = co_await std::move(making);
    device::vector<std::int32_t> arrived(n * (static_cast<std::size_t>(rank) + 1), on);
    auto exchange = call_of(op_kind::all_to_all);
    exchange.tensors.push_back(
        tensor_of<std::int32_t>(exchanged.data(), arrived.data(), exchanged.size(), 1));
    exchange.sent = sent;
    exchange.received.assign(n, 4 * (static_cast<std::size_t>(rank) + 1));
    exchange.marks.push_back(all.mark(exchanged));
    exchange.marks.push_back(all.mark(arrived));
    all.start(std::move(exchange));
    // gather and scatter
    auto piece = co_await filled(on, 3, std::int32_t{rank});
    device::vector<std::int32_t> gathered(rank == root ? 3 * n : 0, on);
    auto gather = call_of(op_kind::gather, reduction_code::no_reduction, root);
    gather.tensors.push_back(
        tensor_of<std::int32_t>(piece.data(), rank == root ? gathered.data() : nullptr, 3, 1));
    gather.marks.push_back(all.mark(piece));
    gather.marks.push_back(all.mark(gathered));
    all.start(std::move(gather));
    std::vector<std::int32_t> whole;
    for (int peer = 0; peer < ranks; ++peer) whole.insert(whole.end(), 2, peer + 5);
    auto making_whole = host(whole);
    auto source = co_await std::move(making_whole);
    device::vector<std::int32_t> part(2, on);
    auto scatter = call_of(op_kind::scatter, reduction_code::no_reduction, root);
    scatter.tensors.push_back(
        tensor_of<std::int32_t>(rank == root ? source.data() : nullptr, part.data(), 2 * n, 1));
    scatter.marks.push_back(all.mark(source));
    scatter.marks.push_back(all.mark(part));
    all.start(std::move(scatter));

    CHECK(co_await soon([&] {
      return std::all_of(all.all.begin(), all.all.end(), [](auto& one) { return one.done.over; });
    }));
    for (const auto& each : all.all) CHECK(!each.done.failed());
    int product = 1;
    for (int i = 1; i <= ranks; ++i) product *= i;
    CHECK(co_await now_in(reduced) ==
          std::vector<std::int32_t>(9, rank == root ? product : rank + 1));
    const int weight = ranks * (ranks + 1) / 2;
    for (std::size_t k = 0; k < scattered.size(); ++k) {
      const std::size_t count = inputs[k].size();
      std::size_t first = 0;
      for (int before = 0; before < rank; ++before) {
        first += count / n + (static_cast<std::size_t>(before) < count % n ? 1 : 0);
      }
      std::vector<std::int32_t> wanted;
      for (std::size_t i = 0; i < scattered[k].size(); ++i) {
        wanted.push_back(static_cast<std::int32_t>(first + i) * weight);
      }
      CHECK(co_await now_in(scattered[k]) == wanted);
    }
    std::vector<std::int32_t> wanted;
    for (int peer = 0; peer < ranks; ++peer) {
      wanted.insert(wanted.end(), static_cast<std::size_t>(rank) + 1, peer * 10 + rank);
    }
    CHECK(co_await now_in(arrived) == wanted);
    if (rank == root) {
      std::vector<std::int32_t> ranks_thrice;
      for (int peer = 0; peer < ranks; ++peer) ranks_thrice.insert(ranks_thrice.end(), 3, peer);
      CHECK(co_await now_in(gathered) == ranks_thrice);
    }
    CHECK(co_await now_in(part) == std::vector<std::int32_t>(2, rank + 5));
  });
}

TEST_CASE("while a coordinator has a device, other communicators are refused there by name") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    auto making = nccl::make_communicator(world);
    auto gpus = co_await std::move(making);
    device::stream on;
    auto values = co_await filled(on, 4, 1.0F);
    {
      elector all(world);
      co_await all.opens();
      CHECK_FALSE(all.failed);
      outcome direct;
      nccl::all_reduce(gpus, on, values, op::sum, direct.handler());
      CHECK(co_await soon([&] { return direct.over; }));
      CHECK(direct.code == cohort::errc::device_ordered);
      auto second = nccl::make_communicator(world);
      std::string text;
      try {
        co_await std::move(second);
      } catch (const cohort::rank_error& refused) {
        text = refused.what();
      }
      CHECK(text.find("a coordinator orders the operations on this device") != std::string::npos);
    }
    outcome direct;
    nccl::all_reduce(gpus, on, values, op::sum, direct.handler());
    CHECK(co_await soon([&] { return direct.over; }));
    CHECK(!direct.code);
  });
}

TEST_CASE("a reduction over nodes goes through MPI between them, in its place of the order") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    const int ranks = world.size();
    nccl::backend_options options;
    options.hierarchical = true;
    options.node = world.rank() * 2 / ranks;
    elector all(world, options);
    all.open();
    device::stream on;
    std::vector<device::vector<double>> buffers;
    // More than goes between the nodes at a time; another type; and a flat operation behind it.
    for (const std::size_t size : {std::size_t{1200000}, std::size_t{5}}) {
      buffers.push_back(co_await filled(on, size, static_cast<double>(world.rank() + 1)));
    }
    auto numbers = co_await filled(on, 7, std::int32_t{-5 - world.rank()});
    auto sums = call_of(op_kind::all_reduce, reduction_code::sum);
    for (auto& each : buffers) {
      sums.tensors.push_back(tensor_of<double>(each.data(), each.data(), each.size(), ranks));
      sums.tensors.back().postscale = 2;
      sums.marks.push_back(all.mark(each));
    }
    all.start(std::move(sums));
    auto average = call_of(op_kind::all_reduce, reduction_code::average);
    average.tensors.push_back(
        tensor_of<std::int32_t>(numbers.data(), numbers.data(), numbers.size(), ranks));
    average.marks.push_back(all.mark(numbers));
    average.ends = cohort::until::enqueued;
    all.start(std::move(average));
    auto flat = co_await filled(on, 3, static_cast<std::int32_t>(world.rank()));
    auto broadcast = call_of(op_kind::broadcast, reduction_code::no_reduction, ranks - 1);
    broadcast.tensors.push_back(tensor_of<std::int32_t>(flat.data(), flat.data(), 3, 1));
    broadcast.marks.push_back(all.mark(flat));
    all.start(std::move(broadcast));
    CHECK(co_await soon([&] { return all.all.back().done.over; }));
    for (const auto& each : all.all) {
      CHECK(each.done.over);
      CHECK(!each.done.failed());
    }
    // Of NCCL they need a reduction to the leader of the node instead of one over all.
    CHECK_DOUBLE((fake_nccl::calls("ncclReduce") != 0) == (ranks > 1));
    CHECK_DOUBLE((fake_nccl::calls("ncclAllReduce") != 0) == (ranks == 1));
    for (const auto& each : buffers) {
      const std::vector<double> wanted(each.size(), ranks * (ranks + 1.0));
      const bool right = co_await now_in(each) == wanted;
      CHECK(right);
    }
    std::int32_t sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += -5 - rank;
    CHECK(co_await now_in(numbers) == std::vector<std::int32_t>(7, sum / ranks));
    CHECK(co_await now_in(flat) == std::vector<std::int32_t>(3, ranks - 1));
  });
}

TEST_CASE("a failure ends what was started on every rank: on the device and waiting") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    co_await all.opens();
    device::stream on;
    auto values = co_await filled(on, 16, 1.0F);
    const auto reduction = [&] { return sum_of(all, values, world.size()); };
    const bool begins = world.rank() == world.size() - 1;
    if (begins) {
      all.start(reduction());
      auto unsized = call_of(op_kind::all_gather);
      unsized.sized = false;
      unsized.tensors.push_back(tensor_of<float>(values.data(), values.data(), 16, 1));
      all.start(std::move(unsized));
      all.start(reduction());
      all.backend->fail(cohort::errc::data_operation_failed, "the test says so");
      // What waits ends at once, what is on the device when that has been aborted.
      CHECK(co_await soon([&] {
        return std::all_of(all.all.begin(), all.all.end(),
                           [](const auto& one) { return one.done.over; });
      }));
      // With one rank the first may have been over by then.
      if (world.size() > 1) CHECK(all.all.front().done.failed());
      CHECK(all.all[1].done.error() == cohort::errc::data_operation_failed);
      CHECK(all.all[2].done.error() == cohort::errc::data_operation_failed);
    } else {
      CHECK(co_await soon([&] {
        auto& later = all.start(reduction());
        static_cast<void>(later);
        return all.all.front().done.failed();
      }));
      CHECK(co_await soon([&] { return all.all.back().done.over; }));
      CHECK(all.all.front().done.error().category() == nccl::nccl_category());
    }
    auto last = cohort::barrier(world);
    co_await std::move(last);
  });
}

TEST_CASE("an operation that is forgotten is never completed") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    co_await all.opens();
    device::stream on;
    auto values = co_await filled(on, 16, 1.0F);
    for (int i = 0; i < 2; ++i) {
      auto& one = all.start(sum_of(all, values, world.size()));
      if (i != 0) continue;
      CHECK(co_await soon([&] { return one.done.over; }));
      CHECK_FALSE(all.backend->forget(one.done));  // it has been completed
    }
    CHECK(all.backend->forget(all.all.back().done));
    all.backend->fail(cohort::errc::aborted, "the test ends");
    co_await pause(20ms);
    CHECK_FALSE(all.all.back().done.over);
    auto last = cohort::barrier(world);
    co_await std::move(last);
  });
}

DOUBLE_TEST_CASE("the next pack is filled while the one before has not been reduced") {
  on_gpus([](cohort::communicator world) -> asio::awaitable<void> {
    elector all(world);
    co_await all.opens();
    device::stream on;
    std::vector<device::vector<float>> buffers;
    for (int i = 0; i < 8; ++i) buffers.push_back(co_await filled(on, 16, 1.0F));
    device::pinned_vector<float> late(16, on);  // now, for it waits for the device
    auto& source = asio::use_service<nccl::issue_source>(world.get_executor().context());
    const device::stream domain = source.domain_of(buffers.front().device());
    fake_gpu::hold(domain.get());
    const std::uint64_t before = fake_gpu::calls("copies and kernels that are done");
    for (std::size_t pack = 0; pack < 2; ++pack) {
      auto call = call_of(op_kind::all_reduce, reduction_code::sum);
      for (std::size_t i = 4 * pack; i < 4 * pack + 4; ++i) {
        call.marks.push_back(all.mark(buffers[i]));
        call.tensors.push_back(
            tensor_of<float>(buffers[i].data(), buffers[i].data(), 16, world.size()));
      }
      all.start(std::move(call));
    }
    CHECK(co_await soon(
        [&] { return fake_gpu::calls("copies and kernels that are done") >= before + 2; }));
    // What is written now comes too late for both packs.
    std::fill(late.begin(), late.end(), 1000.0F);
    for (auto& each : buffers) device::copy(on, late, each);
    auto written = device::done(on);
    co_await std::move(written);
    CHECK_FALSE(all.all.front().done.over);
    fake_gpu::release(domain.get());
    CHECK(co_await soon([&] { return all.all.back().done.over; }));
    for (auto& each : buffers) {
      CHECK(co_await now_in(each) == std::vector<float>(16, static_cast<float>(world.size())));
    }
  });
}
