// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// Devices, streams, events, memory and copies, without an event loop.
#include "gpu/device/support.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

using namespace cohort_test;
using Catch::Matchers::ContainsSubstring;
using cohort::errc;
using cohort::memory_space;

// Host code has nothing to read in device memory, so no verb of MPI takes it by mistake.
static_assert(!cohort::readable_buffer<device::vector<int>&>);
static_assert(!cohort::readable_buffer<device::span<int>&>);
static_assert(!cohort::owned_buffer<device::vector<int>>);
static_assert(cohort::writable_buffer<device::pinned_vector<int>&>);
static_assert(cohort::owned_buffer<device::pinned_vector<int>>);
static_assert(cohort::memory_space_of<device::vector<int>> == memory_space::device);
static_assert(cohort::memory_space_of<device::span<const int>> == memory_space::device);
static_assert(cohort::memory_space_of<device::pinned_vector<int>> == memory_space::pinned);
static_assert(std::is_trivially_copyable_v<device::span<float>>);

TEST_CASE("the default device is fixed by its first use") {
  const machine here;
  if (here.lacks()) return;
  device::set_default(0);
  device::set_default(0);
  CHECK(device::stream().device() == 0);
  CHECK_THROWS_AS(device::set_default(1000), cohort::error);
  CHECK_THROWS_AS(device::set_default(-1), cohort::error);
  CHECK(device::default_device() == 0);
}

TEST_CASE("the default device follows the rank on the node") {
  const machine here(2);
  if (here.lacks()) return;
  const int devices = device::count();
  SECTION("as an upper layer knows it") {
    device::set_local_rank(devices + 1);
    CHECK(device::default_device() == 1);
    CHECK(device::stream().device() == 1);
    CHECK(device::vector<int>(1).device() == 1);
    CHECK(code_thrown_by([] { device::set_default(0); }) == errc::invalid_argument);
    device::set_default(1);
  }
  SECTION("as the launcher says") {
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", "1", 1);
    CHECK(device::default_device() == 1);
    unsetenv("OMPI_COMM_WORLD_LOCAL_RANK");
  }
  SECTION("but what the program says comes first") {
    device::set_local_rank(1);
    device::set_default(0);
    CHECK(device::default_device() == 0);
  }
}

TEST_CASE("devices are told apart by UUID") {
  const machine here;
  if (here.lacks()) return;
  const device::device_uuid first = device::uuid(0);
  CHECK(first.known());
  CHECK(first == device::uuid(0));
  CHECK(first.text().size() == 36);
  CHECK_FALSE(device::device_uuid().known());
  CHECK(device::device_uuid().text() == "00000000-0000-0000-0000-000000000000");
  device::device_uuid example;
  std::iota(example.bytes.begin(), example.bytes.end(), static_cast<unsigned char>(0xa7));
  CHECK(example.text() == "a7a8a9aa-abac-adae-afb0-b1b2b3b4b5b6");
  for (int other = 1; other < device::count(); ++other) CHECK_FALSE(device::uuid(other) == first);
  CHECK_THROWS_AS(device::uuid(-1), cohort::error);
}

TEST_CASE("calls of the library restore the current device") {
  const machine here(2);
  if (here.lacks()) return;
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  {
    const device::stream on(0);
    const device::stream urgent(device::stream_options{.device = 0, .high_priority = true});
    device::vector<int> values(10, on);
    auto host = counted<int>(10, on, 1);
    device::copy(on, host, values);
    urgent.wait(on);
    CHECK(device::current() == 1);
    {
      const device::scoped_device scope(0);
      CHECK(device::current() == 0);
    }
    CHECK(device::current() == 1);
    finish(on);
    int priority = 0;
    CHECK(cudaStreamGetPriority(urgent.get(), &priority) == cudaSuccess);
    CHECK(priority < 0);
  }
  CHECK(device::current() == 1);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
}

TEST_CASE("memory is where CUDA says") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  int on_the_stack = 0;
  CHECK(device::locate(&on_the_stack).space == memory_space::host);
  CHECK(device::locate(nullptr).space == memory_space::host);
  const device::vector<int> values(10, on);
  CHECK(device::locate(values.data() + 3).space == memory_space::device);
  CHECK(device::locate(values.data()).device == 0);
  const device::pinned_vector<int> pinned(10, on);
  CHECK(device::locate(pinned.data() + 9).space == memory_space::pinned);
  void* managed = nullptr;
  REQUIRE(cudaMallocManaged(&managed, 100) == cudaSuccess);
  CHECK(device::locate(managed).space == memory_space::managed);
  CHECK(device::span<char>(static_cast<char*>(managed), 100).device() == 0);
  CHECK(cudaFree(managed) == cudaSuccess);

  const auto where = cohort::memory_traits<device::vector<int>>::locate(values);
  CHECK(where.space == memory_space::device);
  CHECK(where.device == 0);
  CHECK(where.producer == on.get());
}

TEST_CASE("a stream is a handle, and may be somebody else's") {
  const machine here;
  if (here.lacks()) return;
  cudaStream_t native = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&native, cudaStreamNonBlocking) == cudaSuccess);
  {
    const device::stream borrowed = device::stream::borrow(native);
    CHECK_FALSE(borrowed.is_owned());
    CHECK(borrowed.get() == native);
    CHECK(borrowed.device() == 0);
    const device::stream own(0);
    const device::stream same = own;
    CHECK(own == same);
    CHECK_FALSE(own == borrowed);
  }
  CHECK(cudaStreamQuery(native) == cudaSuccess);  // it is still there
  CHECK(cudaStreamDestroy(native) == cudaSuccess);
  const device::stream legacy = device::stream::borrow(nullptr);
  CHECK(legacy.get() == cudaStreamLegacy);
  const device::event mark = legacy.record();
  finish(legacy);
  CHECK(mark.is_ready());
}

TEST_CASE("an event is reached when the work before it is done") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  gate closed(on);
  const device::event mark = on.record();
  CHECK(stays_busy(on));
  CHECK_FALSE(mark.is_ready());
  CHECK(cudaPeekAtLastError() == cudaSuccess);  // "not ready" is nobody's error
  closed.open();
  finish(on);
  CHECK(mark.is_ready());
}

TEST_CASE("a stream waits for another without a host") {
  const machine here;
  if (here.lacks()) return;
  const device::stream first(0);
  const device::stream second(0);
  gate closed(first);
  second.wait(first);
  const device::event behind = second.record();
  CHECK(stays_busy(second));
  CHECK_FALSE(behind.is_ready());
  closed.open();
  finish(second);
  CHECK(behind.is_ready());
}

TEST_CASE("data goes to the device, about it, and back") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  auto out = counted<double>(1000, on, 1.0);
  device::pinned_vector<double> in(1000, on);
  device::vector<double> first(1000, on);
  device::vector<double> second(1000, on);
  device::copy(on, out, first);
  device::copy(on, first, second);
  device::copy(on, second, in);
  finish(on);
  CHECK(in[0] == 1.0);
  CHECK(in[999] == 1000.0);
}

TEST_CASE("a part of device memory is a span") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  auto out = counted<int>(4, on, 7);
  device::pinned_vector<int> in(2, on);
  device::vector<int> values(10, on);
  const device::span<int> all = values;
  device::copy(on, out, all.subspan(3, 4));
  const device::span<const int> middle = all.subspan(4, 2);
  device::copy(on, middle, in);
  finish(on);
  CHECK(in[0] == 8);
  CHECK(in[1] == 9);
  CHECK(all.producer() == on.get());
  CHECK(device::span<int>(values.data(), 10).producer() == nullptr);
  CHECK(device::span<int>(values.data(), 10, on).device() == 0);
  CHECK(code_thrown_by([&] { static_cast<void>(all.subspan(5, 6)); }) == errc::invalid_argument);
  CHECK(code_thrown_by([&] { static_cast<void>(all.subspan(11, 0)); }) == errc::invalid_argument);
  int on_the_stack = 0;
  CHECK(code_thrown_by([&] { device::span<int>(&on_the_stack, 1); }) == errc::invalid_argument);
}

TEST_CASE("many copies go in one batch, behind what their stream has queued") {
  const machine here;
  if (here.lacks()) return;
  auto on = device::stream(0);
  SECTION("of a stream of its own") {}
  SECTION("of the default stream, which takes no batches") { on = device::stream::borrow(nullptr); }
  constexpr int parts = 100;
  auto out = counted<int>(parts * 10, on, 1);
  device::pinned_vector<int> in(parts * 10, on);
  device::vector<int> from(parts * 10, on);
  device::vector<int> to(parts * 10, on);
  std::vector<device::batch_part> batch;
  for (std::size_t i = 0; i < parts; ++i) {  // the tens in reverse order, and nothing between them
    batch.push_back({to.data() + (parts - 1 - i) * 10, from.data() + i * 10, 10 * sizeof(int)});
    batch.push_back({nullptr, nullptr, 0});
  }
  {
    gate closed(on);
    device::copy(on, out, from);
    device::copy_batch(on, batch);
    device::copy(on, to, in);
    CHECK(stays_busy(on));
    closed.open();
  }
  finish(on);
  bool same = true;
  for (int i = 0; i < parts * 10; ++i) {
    same &= in[static_cast<std::size_t>(i)] == (parts - 1 - i / 10) * 10 + i % 10 + 1;
  }
  CHECK(same);
  device::copy_batch(on, {});
  device::copy_batch(on, std::vector<device::batch_part>{{nullptr, nullptr, 0}});
  finish(on);
}

TEST_CASE("device memory is filled with a byte or with a value") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  const std::size_t size = GENERATE(1, 1023, 1024, 1025, 5000);
  device::vector<int> values(size + 2, on);
  device::pinned_vector<int> in(size + 2, on);
  device::fill_bytes(on, values, std::byte(0x11));
  const auto middle = device::span<int>(values).subspan(1, size);
  int expected = 0;
  SECTION("a value of many bytes") {
    device::fill(on, middle, 258);
    expected = 258;
  }
  SECTION("a value of one byte") {
    device::fill(on, middle, -1);
    expected = -1;
  }
  SECTION("a byte") {
    device::fill_bytes(on, middle, std::byte(2));
    expected = 0x02020202;
  }
  device::copy(on, values, in);
  finish(on);
  CHECK(in[0] == 0x11111111);
  CHECK(in[size + 1] == 0x11111111);
  CHECK(std::count(in.begin(), in.end(), expected) == static_cast<std::ptrdiff_t>(size));
}

TEST_CASE("a filling comes between what its buffer's stream has queued and what it will") {
  const machine here;
  if (here.lacks()) return;
  const device::stream producer(0);
  const device::stream on(0);
  auto out = counted<int>(10, producer, 1);
  device::pinned_vector<int> in(10, producer);
  device::vector<int> values(10, producer);
  const bool value = GENERATE(true, false);
  {
    gate closed(producer);
    device::copy(producer, out, values);
    if (value) device::fill(on, values, 300);
    if (!value) device::fill_bytes(on, values, std::byte(1));
    CHECK(stays_busy(on));
    closed.open();
  }
  finish(on);
  {
    gate closed(on);
    if (value) device::fill(on, values, 301);
    if (!value) device::fill_bytes(on, values, std::byte(2));
    device::copy(producer, values, in);
    CHECK(stays_busy(producer));
    closed.open();
  }
  finish(producer);
  CHECK(in[9] == (value ? 301 : 0x02020202));
  device::fill(on, device::vector<int>(0, on), 5);  // nothing to do
  device::fill_bytes(on, device::vector<int>(), std::byte(5));
}

TEST_CASE("a vector may go while its stream still works on it") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  auto out = counted<int>(100, on, 5);
  device::pinned_vector<int> in(100, on);
  {
    gate closed(on);
    device::vector<int> values(100, on);
    device::copy(on, out, values);
    device::copy(on, values, in);
    values = device::vector<int>();  // freed behind what is queued
    closed.open();
  }
  finish(on);
  CHECK(in[99] == 104);
}

TEST_CASE("a vector that is moved keeps its memory") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  device::vector<int> first(10, on);
  int* const data = first.data();
  device::vector<int> second = std::move(first);
  CHECK(second.data() == data);
  CHECK(second.producer() == on);
  CHECK(first.empty());
  CHECK(first.device() == -1);
  first = std::move(second);
  CHECK(first.data() == data);
  CHECK(first.bytes() == 10 * sizeof(int));
  const device::vector<int> none(0, on);
  CHECK(none.data() == nullptr);
  CHECK(code_thrown_by([&] { device::vector<int>(SIZE_MAX / 2, on); }) == errc::count_too_large);
}

TEST_CASE("vectors come and go while the device is held up") {
  const machine here;
  if (here.lacks()) return;
  const device::stream busy(0);
  const device::stream on(0);
  {
    const device::pinned_vector<int> warm(100, on);
  }
  finish(on);
  gate closed(busy);
  for (int i = 0; i < 3; ++i) {
    {
      const device::vector<int> values(100, on);  // cudaMalloc and cudaFree would hang here
      const device::pinned_vector<int> host(100, on);
    }
    finish(on);  // so that the pinned block is out of use
  }
  CHECK(stays_busy(busy));
}

TEST_CASE("a copy comes after what its buffers' streams have queued, and before what they will") {
  const machine here;
  if (here.lacks()) return;
  const device::stream producer(0);
  const device::stream on(0);
  auto out = counted<int>(10, on, 3);
  auto later = counted<int>(10, on, 50);
  device::pinned_vector<int> in(10, on);
  {
    gate closed(producer);
    device::vector<int> values(10, producer);
    device::copy(producer, out, values);
    device::copy(on, values, in);
    CHECK(stays_busy(on));
    device::copy(producer, later, values);
    closed.open();
  }
  finish(on);
  CHECK(in[0] == 3);
  finish(producer);
}

TEST_CASE("a copy between devices comes between what both have queued and what they will") {
  const machine here(2);
  if (here.lacks()) return;
  const device::stream zero(0);
  const device::stream one(1);
  auto on = device::stream(0);
  SECTION("in a stream of its own") {}
  SECTION("in that of the target") { on = one; }
  SECTION("in that of the source") { on = zero; }
  auto out = counted<int>(10, zero, 3);
  auto later = counted<int>(10, zero, 50);
  device::pinned_vector<int> in(10, one);
  device::vector<int> to(10, one);
  {
    device::vector<int> from(10, zero);
    gate closed(zero);
    device::copy(zero, out, from);
    device::copy(on, from, to);
    device::copy(one, to, in);
    CHECK(stays_busy(on));
    CHECK(stays_busy(one));  // although the target's stream was not the one that copies
    device::copy(zero, later, from);
    closed.open();
  }  // and the source may go
  finish(one);
  CHECK(in[0] == 3);
  CHECK(in[9] == 12);
  finish(zero);
  finish(on);
  CHECK(device::current() == 0);
}

TEST_CASE("the source of a copy between devices is not written before it was read") {
  const machine here(2);
  if (here.lacks()) return;
  auto zero = device::stream(0);
  auto one = device::stream(1);
  SECTION("in streams of their own") {}
  SECTION("in the default streams, which have one handle") {
    zero = device::stream::borrow(nullptr, 0);
    one = device::stream::borrow(nullptr, 1);
  }
  auto later = counted<int>(10, zero, 50);
  auto out = counted<int>(10, zero, 3);
  device::pinned_vector<int> in(10, one);
  device::vector<int> from(10, zero);
  device::vector<int> to(10, one);
  device::copy(zero, out, from);
  {
    gate closed(one);  // the copy cannot begin
    device::copy(one, from, to);
    device::copy(zero, later, from);
    device::copy(one, to, in);
    CHECK(stays_busy(zero));
    closed.open();
  }
  finish(one);
  CHECK(in[0] == 3);
  finish(zero);
}

TEST_CASE("a wrong copy is refused before CUDA is asked") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  device::vector<int> values(10, on);
  const device::pinned_vector<int> nine(9, on);
  std::vector<int> pageable(10);
  CHECK(code_thrown_by([&] { device::copy(on, nine, values); }) == errc::size_mismatch);
  CHECK(code_thrown_by([&] { device::copy(on, pageable, values); }) == errc::invalid_argument);
  CHECK_THROWS_WITH(device::copy(on, values, pageable), ContainsSubstring("pinned_vector"));
  device::copy(on, std::vector<int>(), device::span<int>(values).subspan(0, 0));  // nothing to do
}

TEST_CASE("pinned memory is used again, but not while a copy uses it") {
  const machine here;
  if (here.lacks()) return;
  const device::stream on(0);
  device::vector<int> values(3000, on);
  finish(on);
  static_cast<void>(device::pinned_pool::of_process().trim());
  auto host = counted<int>(3000, on, 0);
  const int* const first = host.data();
  {
    gate closed(on);
    device::copy(on, host, values);
    host = device::pinned_vector<int>();
    CHECK(device::pinned_pool::of_process().size() == 1);
    CHECK(device::pinned_pool::of_process().trim() == 0);  // still in use
    closed.open();
  }
  finish(on);
  const device::pinned_vector<int> again(3000, on);
  CHECK(again.data() == first);
  CHECK(device::pinned_pool::of_process().size() == 0);
}

TEST_CASE("codes of CUDA have its text") {
  const machine here;
  if (here.lacks()) return;
  const std::error_code code = device::make_error(cudaErrorLaunchFailure);
  CHECK(code.category().name() == std::string("cuda"));
  CHECK_THAT(code.message(), ContainsSubstring("cudaErrorLaunchFailure"));
  CHECK(device::make_error(cudaErrorMemoryAllocation) == std::errc::not_enough_memory);
  CHECK(device::make_error(cudaErrorInvalidValue) == std::errc::invalid_argument);
  CHECK_FALSE(device::make_error(cudaSuccess));
  for (const auto none : {cudaErrorStubLibrary, cudaErrorInsufficientDriver, cudaErrorNoDevice}) {
    CHECK(device::make_error(none) == errc::no_device);
  }
  CHECK(device::is_sticky(cudaErrorIllegalAddress));
  CHECK_FALSE(device::is_sticky(cudaErrorMemoryAllocation));
  CHECK_THROWS_AS(device::stream(device::detail::most_devices), cohort::error);
}
