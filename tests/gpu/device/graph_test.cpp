// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Graphs captured from streams, as cohort and its users meet them. Most of it is CUDA's own
// behaviour, which the double must show too, so it runs on a device as it is.
#include "gpu/device/support.hpp"

#include <mutex>
#include <optional>
#include <string>

using namespace cohort_test;

namespace {

/// An executable graph of what `queue` puts in `on` and in the streams that it forks.
class graph {
 public:
  template <class Queue>
  graph(const device::stream& on, Queue queue) {
    REQUIRE(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
    queue();
    cudaGraph_t made = nullptr;
    REQUIRE(cudaStreamEndCapture(on.get(), &made) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&native_, made, 0) == cudaSuccess);
    CHECK(cudaGraphDestroy(made) == cudaSuccess);  // the executable one has what it needs
  }
  ~graph() {
    if (native_ != nullptr) cudaGraphExecDestroy(native_);
  }
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;

  void launch(const device::stream& on) const {
    REQUIRE(cudaGraphLaunch(native_, on.get()) == cudaSuccess);
  }
  [[nodiscard]] cudaGraphExec_t get() const { return native_; }

 private:
  cudaGraphExec_t native_ = nullptr;
};

/// Letters that functions of the host leave, in their order.
struct trace {
  std::mutex mutex;
  std::string text;

  struct step {
    trace* of;
    char letter;
  };
  void add(const device::stream& on, const step& what) {
    const auto run = [](void* at) {
      const auto& done = *static_cast<const step*>(at);
      const std::lock_guard hold(done.of->mutex);
      done.of->text += done.letter;
    };
    REQUIRE(cudaLaunchHostFunc(on.get(), run, const_cast<step*>(&what)) == cudaSuccess);
  }
};

/// What waits in `waiting` comes after what is in `recorded` now.
void edge(const device::stream& recorded, const device::stream& waiting,
          const device::event& through) {
  REQUIRE(cudaEventRecord(through.get(), recorded.get()) == cudaSuccess);
  REQUIRE(cudaStreamWaitEvent(waiting.get(), through.get(), 0) == cudaSuccess);
}

cudaError_t forget_last(cudaError_t code) {
  static_cast<void>(cudaGetLastError());
  return code;
}

/// Ends a capture that must not have become a graph.
cudaError_t end_without_graph(const device::stream& on) {
  cudaGraph_t made = nullptr;
  const cudaError_t code = cudaStreamEndCapture(on.get(), &made);
  CHECK(made == nullptr);
  return forget_last(code);
}

}  // namespace

TEST_CASE("a graph does nothing until it is launched, and then all of it, each time") {
  const machine here;
  if (here.lacks()) return;
  const device::stream captured(0);
  const device::stream on(0);
  auto out = counted<int>(100, on, 1);
  device::pinned_vector<int> in(100, on);
  device::vector<int> first(100, on);
  device::vector<int> second(100, on);
  finish(on);
  trace seen;
  const trace::step a{&seen, 'a'};
  const graph made(captured, [&] {
    const device::span<int> from(first.data(), 100, captured);
    const device::span<int> to(second.data(), 100, captured);
    device::copy(captured, out, from);
    REQUIRE(cudaMemsetAsync(first.data(), 0, 40, captured.get()) == cudaSuccess);
    const std::vector<device::batch_part> halves = {{second.data(), first.data(), 200},
                                                    {second.data() + 50, first.data() + 50, 200}};
    device::copy_batch(captured, halves);
    device::copy(captured, to, in);
    seen.add(captured, a);
  });
  finish(captured);
  CHECK(seen.text.empty());
  made.launch(on);
  finish(on);
  CHECK(seen.text == "a");
  CHECK(in[9] == 0);
  CHECK(in[10] == 11);
  CHECK(in[99] == 100);
  out[99] = 7;
  made.launch(on);
  made.launch(on);
  finish(on);
  CHECK(seen.text == "aaa");
  CHECK(in[99] == 7);
}

TEST_CASE("a graph comes after what its stream has queued, and before what it will") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  const device::stream beside(0);
  trace seen;
  const trace::step a{&seen, 'a'}, b{&seen, 'b'}, c{&seen, 'c'};
  const graph made(beside, [&] { seen.add(beside, b); });
  {
    gate closed(on);
    seen.add(on, a);
    made.launch(on);
    seen.add(on, c);
    CHECK(stays_busy(on));
    CHECK(seen.text.empty());
    CHECK(is_idle(beside));  // where it was captured does not matter
    closed.open();
  }
  finish(on);
  CHECK(seen.text == "abc");
}

TEST_CASE("a stream that waits for a captured one is captured with it, in the order of the edges") {
  const machine here;
  if (here.lacks()) return;
  const device::stream origin(0);
  const device::stream fork(0);
  const device::stream on(0);
  const device::event begin(0), middle(0), end(0);
  trace seen;
  const trace::step a{&seen, 'a'}, b{&seen, 'b'}, c{&seen, 'c'}, d{&seen, 'd'};
  const graph made(origin, [&] {
    seen.add(origin, a);
    edge(origin, fork, begin);
    CHECK(fork.is_capturing());
    seen.add(fork, b);
    edge(fork, origin, middle);
    seen.add(origin, c);
    edge(origin, fork, end);  // nothing behind it, so it need not be joined
    seen.add(origin, d);
  });
  CHECK_FALSE(fork.is_capturing());
  for (int i = 0; i < 10; ++i) made.launch(i % 2 == 0 ? on : fork);
  finish(fork);
  finish(on);
  std::string all;
  for (int i = 0; i < 10; ++i) all += "abcd";
  CHECK(seen.text == all);  // one launch after another too, in whichever streams
}

TEST_CASE("a graph is waited for as anything else") {
  const machine here;
  if (here.lacks()) return;
  asio::io_context io;
  const device::stream on(0);
  trace seen;
  const trace::step a{&seen, 'a'};
  const graph made(on, [&] { seen.add(on, a); });
  std::optional<std::error_code> ended;
  {
    gate closed(on);
    made.launch(on);
    device::done(io, on, [&](std::error_code error) { ended = error; });
    io.run_for(std::chrono::milliseconds(2));
    CHECK_FALSE(ended);
    closed.open();
  }
  io.run();
  REQUIRE(ended);
  CHECK_FALSE(*ended);
  CHECK(seen.text == "a");
}

TEST_CASE("what cannot be captured is refused, and ends the capture without a graph") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  const device::stream other(0);
  const device::event mark(0);
  REQUIRE(cudaEventRecord(mark.get(), other.get()) == cudaSuccess);
  finish(other);
  const auto begin = [&](cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
    REQUIRE(cudaStreamBeginCapture(on.get(), mode) == cudaSuccess);
  };
  trace seen;
  const trace::step a{&seen, 'a'};
  SECTION("waiting for the stream") {
    begin();
    CHECK(forget_last(cudaStreamSynchronize(on.get())) == cudaErrorStreamCaptureUnsupported);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("asking for the stream") {
    begin();
    CHECK(forget_last(cudaStreamQuery(on.get())) == cudaErrorStreamCaptureUnsupported);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("an event from outside") {
    begin();
    CHECK(forget_last(cudaStreamWaitEvent(on.get(), mark.get(), 0)) ==
          cudaErrorStreamCaptureIsolation);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("another capture") {
    begin();
    REQUIRE(cudaStreamBeginCapture(other.get(), cudaStreamCaptureModeRelaxed) == cudaSuccess);
    REQUIRE(cudaEventRecord(mark.get(), other.get()) == cudaSuccess);
    CHECK(forget_last(cudaStreamWaitEvent(on.get(), mark.get(), 0)) == cudaErrorStreamCaptureMerge);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureInvalidated);
    CHECK(end_without_graph(other) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("a stream that does not come back") {
    begin();
    edge(on, other, mark);
    seen.add(other, a);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureUnjoined);
  }
  SECTION("an end in another stream than the beginning") {
    begin();
    edge(on, other, mark);
    CHECK(end_without_graph(other) == cudaErrorStreamCaptureUnmatched);
    static_cast<void>(forget_last(cudaStreamSynchronize(on.get())));  // spoils it, if it still is
    static_cast<void>(end_without_graph(on));
  }
  SECTION("an end without a beginning") { CHECK(end_without_graph(on) == cudaErrorIllegalState); }
  SECTION("a second beginning") {
    begin();
    CHECK(forget_last(cudaStreamBeginCapture(on.get(), cudaStreamCaptureModeRelaxed)) ==
          cudaErrorIllegalState);
    static_cast<void>(forget_last(cudaStreamSynchronize(on.get())));
    static_cast<void>(end_without_graph(on));
  }
  SECTION("an end in another thread") {
    begin(cudaStreamCaptureModeThreadLocal);
    std::thread([&] { CHECK(end_without_graph(on) == cudaErrorStreamCaptureWrongThread); }).join();
    CHECK(end_without_graph(on) == cudaErrorIllegalState);  // that has ended it
  }
  SECTION("the legacy default stream") {
    CHECK(forget_last(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeRelaxed)) ==
          cudaErrorStreamCaptureUnsupported);
  }
  SECTION("memory of the device, in the mode that forbids it") {
    begin(cudaStreamCaptureModeThreadLocal);
    void* memory = nullptr;
    CHECK(forget_last(cudaMalloc(&memory, 100)) == cudaErrorStreamCaptureUnsupported);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("asking for an event of the capture") {
    begin();
    REQUIRE(cudaEventRecord(mark.get(), on.get()) == cudaSuccess);
    CHECK(mark.query() == cudaErrorCapturedEvent);
    CHECK(end_without_graph(on) == cudaErrorStreamCaptureInvalidated);
  }
  SECTION("an event of a capture that has ended tells nothing") {
    begin();
    REQUIRE(cudaEventRecord(mark.get(), on.get()) == cudaSuccess);
    cudaGraph_t made = nullptr;
    CHECK(cudaStreamEndCapture(on.get(), &made) == cudaSuccess);
    CHECK(mark.query() == cudaErrorInvalidValue);
    CHECK(forget_last(cudaStreamWaitEvent(other.get(), mark.get(), 0)) == cudaErrorInvalidValue);
    CHECK(cudaGraphDestroy(made) == cudaSuccess);
  }
  // Afterwards the streams take work as before.
  seen.add(on, a);
  finish(on);
  finish(other);
  CHECK(seen.text == "a");
}

DOUBLE_TEST_CASE("the double: what is not ordered in a graph runs at the same time") {
  const machine here;
  const device::stream origin(0);
  const device::stream fork(0);
  const device::event begin(0), end(0);
  std::atomic<int> met{0};  // both are needed; hardware may call functions of the host one by one
  const auto meet = [](void* at) {
    auto& both = *static_cast<std::atomic<int>*>(at);
    both.fetch_add(1);
    both.notify_all();
    for (int now = both; now % 2 != 0; now = both) both.wait(now);
  };
  const graph made(origin, [&] {
    edge(origin, fork, begin);
    CHECK(fake_gpu::launch(fork.get(), meet, &met) == cudaSuccess);
    CHECK(fake_gpu::launch(origin.get(), meet, &met) == cudaSuccess);
    edge(fork, origin, end);
  });
  made.launch(origin);
  finish(origin);
  CHECK(met == 2);
}

DOUBLE_TEST_CASE("the double: a graph that is destroyed finishes, and cannot be launched again") {
  const machine here;
  const device::stream on(0);
  trace seen;
  const trace::step a{&seen, 'a'};
  const auto streams = fake_gpu::live_streams(0);
  cudaGraphExec_t native = nullptr;
  {
    gate closed(on);
    const graph made(on, [&] { seen.add(on, a); });
    native = made.get();
    made.launch(on);
    CHECK(fake_gpu::live_streams(0) == streams);  // those of a graph are not the program's
  }
  finish(on);
  CHECK(seen.text == "a");
  CHECK(forget_last(cudaGraphLaunch(native, on.get())) == cudaErrorInvalidResourceHandle);
  CHECK(forget_last(cudaGraphExecDestroy(native)) == cudaErrorInvalidValue);
  CHECK(forget_last(cudaGraphDestroy(nullptr)) == cudaErrorInvalidValue);
}

DOUBLE_TEST_CASE("the double: a graph whose device was reset or has failed is refused") {
  const machine here(2);
  const device::stream on(0);
  const device::stream other(1);
  trace seen;
  const trace::step a{&seen, 'a'};
  const graph made(on, [&] { seen.add(on, a); });
  SECTION("reset") {
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    REQUIRE(cudaDeviceReset() == cudaSuccess);
    CHECK(forget_last(cudaGraphLaunch(made.get(), other.get())) == cudaErrorInvalidResourceHandle);
  }
  SECTION("failed") {
    fake_gpu::break_device(0, cudaErrorLaunchFailure);
    CHECK(forget_last(cudaGraphLaunch(made.get(), other.get())) == cudaErrorLaunchFailure);
  }
  finish(other);
  CHECK(seen.text.empty());
}
