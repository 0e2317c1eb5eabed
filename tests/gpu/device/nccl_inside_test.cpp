// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// The double of NCCL with several devices in one process: each thing that it claims to do or to
// catch. What a test here says fails if the double does not do it.
#include "gpu/device/nccl_support.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace cohort_test;
using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Devices of this process, a stream for each, and communicators over them.
struct cluster {
  explicit cluster(int devices) {
    fake_gpu::restart(devices);
    for (int i = 0; i < devices; ++i) streams.push_back(make_stream(i));
  }
  ~cluster() {
    abort_all();
    fake_gpu::restart(0);
  }
  cluster(const cluster&) = delete;
  cluster& operator=(const cluster&) = delete;

  /// A communicator with a rank on each of these devices.
  std::vector<ncclComm_t> make(const char* name, const std::vector<int>& devices,
                               bool blocking = false) {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<ncclComm_t> made(devices.size());
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      REQUIRE(cudaSetDevice(devices[i]) == cudaSuccess);
      ncclConfig_t config = non_blocking(name);
      config.blocking = blocking ? 1 : 0;
      CHECK(ncclCommInitRankConfig(&made[i], static_cast<int>(devices.size()), id,
                                   static_cast<int>(i), &config) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == (blocking ? ncclSuccess : ncclInProgress));
    for (ncclComm_t comm : made) {
      REQUIRE(settle(comm) == ncclSuccess);
      all.push_back(comm);
    }
    return made;
  }

  /// An in-place sum over one element, by all ranks together.
  void sum(const std::vector<ncclComm_t>& comms, const std::vector<const array<int>*>& values,
           const std::vector<cudaStream_t>& on) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (std::size_t i = 0; i < comms.size(); ++i) {
      CHECK(one_sum(comms[i], *values[i], on[i]) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclInProgress);
    for (ncclComm_t comm : comms) REQUIRE(settle(comm) == ncclSuccess);
  }

  static ncclResult_t one_sum(ncclComm_t comm, const array<int>& value, cudaStream_t on) {
    return ncclAllReduce(value.data(), value.data(), 1, ncclInt32, ncclSum, comm, on);
  }

  void abort_all() {
    ncclGroupStart();
    for (ncclComm_t comm : all) ncclCommAbort(comm);
    CHECK(ncclGroupEnd() == ncclSuccess);
    all.clear();
  }

  void forget(ncclComm_t comm) { std::erase(all, comm); }

  std::vector<cudaStream_t> streams;
  std::vector<ncclComm_t> all;
};

bool any_contains(const std::vector<std::string>& texts, const std::string& part) {
  for (const std::string& one : texts) {
    if (one.find(part) != std::string::npos) return true;
  }
  return false;
}

/// Whether the shared memory for an id can be found by its name. Other programs have theirs.
bool has_segment(const ncclUniqueId& id) {
  std::string name = "/dev/shm/cohort_fake_nccl.";
  for (int i = 8; i < 24; ++i) {
    constexpr const char* digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(id.internal[i]);
    name += {digits[byte >> 4], digits[byte & 15]};
  }
  return access(name.c_str(), F_OK) == 0;
}

/// A pair of devices whose communicator has been used, so that launches wait for nobody.
struct pair : cluster {
  explicit pair(int devices = 2) : cluster(devices) {
    comms = make("pair", {0, 1});
    sum(comms, {&left, &right}, streams);
    REQUIRE(left.values()[0] == 3);
  }
  array<int> left{std::vector<int>{1}, streams[0]};
  array<int> right{std::vector<int>{2}, streams[1]};
  std::vector<ncclComm_t> comms;
};

cudaEvent_t record(int device, cudaStream_t stream) {
  cudaEvent_t made = nullptr;
  REQUIRE(cudaSetDevice(device) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&made, cudaEventDisableTiming) == cudaSuccess);
  REQUIRE(cudaEventRecord(made, stream) == cudaSuccess);
  return made;
}

bool done(cudaEvent_t event) {
  const cudaError_t code = cudaEventQuery(event);
  static_cast<void>(cudaGetLastError());
  return code == cudaSuccess;
}

}  // namespace

// ---- making and ending -------------------------------------------------------------------------

TEST_CASE("an id can be had without a device, a communicator cannot") {
  fake_gpu::restart(0);
  ncclUniqueId one;
  ncclUniqueId two;
  CHECK(ncclGetUniqueId(&one) == ncclSuccess);
  CHECK(ncclGetUniqueId(&two) == ncclSuccess);
  CHECK(std::memcmp(&one, &two, sizeof one) != 0);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = non_blocking();
  CHECK(ncclCommInitRankConfig(&comm, 1, one, 0, &config) == ncclUnhandledCudaError);
  CHECK(comm == nullptr);
  int version = 0;
  CHECK(ncclGetVersion(&version) == ncclSuccess);
  CHECK(version == NCCL_VERSION_CODE);
}

TEST_CASE("a rank that does not come leaves the others in progress, and an abort ends that") {
  cluster here(1);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclComm_t comm = nullptr;
  ncclConfig_t config = non_blocking();
  CHECK(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  std::this_thread::sleep_for(10ms);
  CHECK(state(comm) == ncclInProgress);
  CHECK(has_segment(id));
  CHECK(ncclCommAbort(comm) == ncclSuccess);
  CHECK_FALSE(has_segment(id));  // and nothing is left on the machine
}

TEST_CASE("the shared memory has no name once all ranks are there") {
  cluster here(2);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  ncclConfig_t config = non_blocking();
  for (int i = 0; i < 2; ++i) {
    REQUIRE(cudaSetDevice(i) == cudaSuccess);
    ncclComm_t comm = nullptr;
    CHECK(ncclCommInitRankConfig(&comm, 2, id, i, &config) == ncclInProgress);
    here.all.push_back(comm);
    if (i == 0) CHECK(has_segment(id));
  }
  for (ncclComm_t comm : here.all) CHECK(settle(comm) == ncclSuccess);
  CHECK_FALSE(has_segment(id));
}

TEST_CASE("what a process that died has left is removed, what others use is not") {
  fake_gpu::restart(0);
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  const pid_t child = fork();
  if (child == 0) {
    fake_gpu::restart(1);
    ncclComm_t comm = nullptr;
    ncclConfig_t config = non_blocking();
    const char made = ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress ? 1 : 0;
    const auto written = write(ends[1], &made, 1);
    while (written == 1) pause();  // until it is killed
    _exit(1);
  }
  char made = 0;
  REQUIRE(child > 0);
  CHECK(read(ends[0], &made, 1) == 1);
  CHECK(made == 1);
  CHECK(has_segment(id));
  {
    cluster here(2);
    here.make("pair", {0, 1});
    CHECK(has_segment(id));  // the control: it lives
  }
  CHECK(kill(child, SIGKILL) == 0);
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  {
    cluster here(2);
    here.make("pair", {0, 1});
    CHECK_FALSE(has_segment(id));
  }
  close(ends[0]);
  close(ends[1]);
}

TEST_CASE("other versions and duplicate devices are refused") {
  cluster here(3);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  std::vector<ncclComm_t> comms(3);
  std::vector<ncclResult_t> expected(3, ncclInvalidUsage);
  const char* text = "";
  const auto init = [&](int rank) {
    REQUIRE(cudaSetDevice(rank) == cudaSuccess);
    ncclConfig_t config = non_blocking();
    CHECK(ncclCommInitRankConfig(&comms[std::size_t(rank)], 3, id, rank, &config) ==
          ncclInProgress);
  };
  SECTION("versions") {
    text = "mismatched versions";
    init(0);
    init(1);
    fake_nccl::set_version(22803);
    init(2);
  }
  SECTION("duplicates") {
    text = "duplicate GPU: rank 0 and rank 1";
    expected[2] = ncclRemoteError;  // another rank's fault
    fake_gpu::set_bus_id(1, 0x17);
    for (int i = 0; i < 3; ++i) init(i);
  }
  SECTION("the same bus id on another host is another device") {
    expected.assign(3, ncclSuccess);
    fake_gpu::set_bus_id(1, 0x17);
    init(0);
    fake_nccl::set_host("elsewhere");
    init(1);
    init(2);
  }
  SECTION("as NCCL, it takes a host's name from the environment") {
    expected.assign(3, ncclSuccess);
    fake_gpu::set_bus_id(1, 0x17);
    init(0);
    setenv("NCCL_HOSTID", "elsewhere", 1);
    init(1);
    init(2);
    unsetenv("NCCL_HOSTID");
  }
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(settle(comms[i]) == expected[i]);
    here.all.push_back(comms[i]);
  }
  CHECK_THAT(ncclGetLastError(comms[0]), ContainsSubstring(text));
}

TEST_CASE(
    "finalizing is in progress while collectives are pending, and destroying waits for them") {
  pair here;
  fake_gpu::hold(here.streams[0]);
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  bool finalize = false;
  SECTION("finalized") { finalize = true; }
  SECTION("not finalized") {}
  if (finalize) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (ncclComm_t comm : here.comms) CHECK(ncclCommFinalize(comm) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInProgress);
    std::this_thread::sleep_for(10ms);
    CHECK(state(here.comms[0]) == ncclInProgress);
    CHECK(state(here.comms[1]) == ncclInProgress);  // its kernel waits for rank 0
    fake_gpu::release(here.streams[0]);
    for (ncclComm_t comm : here.comms) {
      CHECK(settle(comm) == ncclSuccess);
      CHECK(ncclAllReduce(nullptr, nullptr, 1, ncclInt32, ncclSum, comm, nullptr) ==
            ncclInvalidUsage);
      CHECK(ncclCommDestroy(comm) == ncclSuccess);
    }
  } else {
    std::atomic<bool> over{false};
    std::thread destroyer([&] {
      ncclGroupStart();
      for (ncclComm_t comm : here.comms) ncclCommDestroy(comm);
      ncclGroupEnd();
      over = true;
    });
    CHECK(becomes([] { return fake_nccl::blocked_calls() == 1; }));
    std::this_thread::sleep_for(10ms);
    CHECK_FALSE(over);
    fake_gpu::release(here.streams[0]);
    destroyer.join();
  }
  here.all.clear();
  CHECK(fake_nccl::live_communicators() == 0);
  CHECK(fake_nccl::faults().empty());
  ncclResult_t code = ncclSuccess;
  CHECK(ncclCommGetAsyncError(here.comms[0], &code) == ncclInvalidArgument);
  CHECK(any_contains(fake_nccl::faults(), "destroyed"));
}

TEST_CASE("creation waits for what runs on the device") {
  pair here(3);
  fake_gpu::hold(here.streams[1]);
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  std::vector<ncclComm_t> made;
  SECTION("of one on the device") {
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    made.resize(1);
    ncclConfig_t config = non_blocking();
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    CHECK(ncclCommInitRankConfig(&made[0], 1, id, 0, &config) == ncclInProgress);
  }
  SECTION("by splitting") {
    made.resize(2);
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(ncclCommSplit(here.comms[i], 0, 0, &made[i], nullptr) == ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclInProgress);
  }
  std::this_thread::sleep_for(10ms);
  for (ncclComm_t comm : made) {
    CHECK(state(comm) == ncclInProgress);
    here.all.push_back(comm);
  }
  fake_gpu::release(here.streams[1]);
  for (ncclComm_t comm : made) CHECK(settle(comm) == ncclSuccess);
}

TEST_CASE("devices are told apart by bus id and UUID") {
  fake_gpu::restart(2);
  fake_gpu::set_bus_id(1, 0x2a);
  char text[32] = {};
  CHECK(cudaDeviceGetPCIBusId(text, sizeof text, 1) == cudaSuccess);
  CHECK(std::string(text) == "0000:2a:00.0");
  CHECK(cudaDeviceGetPCIBusId(text, 3, 1) == cudaErrorInvalidValue);
  CHECK(cudaDeviceGetPCIBusId(text, sizeof text, 2) == cudaErrorInvalidDevice);
  cudaDeviceProp zero;
  cudaDeviceProp one;
  CHECK(cudaGetDeviceProperties(&zero, 0) == cudaSuccess);
  CHECK(cudaGetDeviceProperties(&one, 1) == cudaSuccess);
  CHECK(std::memcmp(&zero.uuid, &one.uuid, sizeof zero.uuid) != 0);
  CHECK(one.pciBusID == 0x2a);
  static_cast<void>(cudaGetLastError());
}

// ---- in progress -------------------------------------------------------------------------------

TEST_CASE("what is in progress is not in its stream, and calls in that time are faults") {
  pair here;
  const auto other = here.make("other", {0, 1});
  CHECK(fake_nccl::faults().empty());
  fake_nccl::hold_launches(true);
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
  CHECK(idle(here.streams[0]));
  SECTION("a call for the same communicator") {
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInvalidArgument);
    int count = 0;
    CHECK(ncclCommCount(here.comms[0], &count) == ncclInvalidArgument);
    CHECK(any_contains(fake_nccl::faults(), "ncclAllReduce was called while pair is in progress"));
  }
  SECTION("a call for another communicator of the device") {
    cudaStream_t beside = make_stream(0);
    const array<int> value(1, beside);
    CHECK(fake_nccl::faults().empty());
    CHECK(here.one_sum(other[0], value, beside) == ncclInProgress);
    CHECK(any_contains(fake_nccl::faults(), "while pair is in progress on device 0"));
  }
  SECTION("the control: the other communicator only finalizes") {
    fake_nccl::hold_launches(false);
    CHECK(settle(here.comms[0]) == ncclSuccess);
    CHECK(ncclCommFinalize(other[0]) == ncclInProgress);
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
    CHECK(fake_nccl::faults().empty());
  }
  SECTION("the control: another device") {
    CHECK(here.one_sum(other[1], here.right, here.streams[1]) == ncclInProgress);
    CHECK(fake_nccl::faults().empty());
  }
  SECTION("work in the stream: an event is done before the collective") {
    const cudaEvent_t early = record(0, here.streams[0]);
    CHECK(becomes([&] { return done(early); }));
    CHECK(any_contains(fake_nccl::faults(), "before the collective that is in progress there"));
    fake_nccl::hold_launches(false);
    CHECK(settle(here.comms[0]) == ncclSuccess);
    CHECK_FALSE(idle(here.streams[0]));  // the peer has not called
    fake_nccl::clear_faults();
    const cudaEvent_t late = record(0, here.streams[0]);
    CHECK_FALSE(done(late));
    CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
    CHECK(becomes([&] { return done(late); }));
    CHECK(fake_nccl::faults().empty());
  }
}

TEST_CASE("a first collective is launched when all ranks have called it") {
  cluster here(2);
  const auto comms = here.make("pair", {0, 1});
  const array<int> left(std::vector<int>{1}, here.streams[0]);
  const array<int> right(std::vector<int>{2}, here.streams[1]);
  CHECK(here.one_sum(comms[0], left, here.streams[0]) == ncclInProgress);
  std::this_thread::sleep_for(10ms);
  CHECK(state(comms[0]) == ncclInProgress);
  CHECK(here.one_sum(comms[1], right, here.streams[1]) == ncclInProgress);
  CHECK(settle(comms[0]) == ncclSuccess);
  CHECK(settle(comms[1]) == ncclSuccess);
  CHECK(left.values()[0] == 3);
  CHECK(here.one_sum(comms[0], left, here.streams[0]) == ncclInProgress);
  CHECK(settle(comms[0]) == ncclSuccess);  // the second does not wait for that
}

TEST_CASE("communicators in progress together are launched in any order") {
  std::set<std::vector<std::string>> seen;
  for (unsigned seed = 1; seed <= 40 && seen.size() < 2; ++seed) {
    cluster here(2);
    fake_nccl::seed(seed);
    fake_nccl::launch_delay(0, 0);
    const auto a = here.make("a", {0, 1});
    const auto b = here.make("b", {0, 1});
    const array<int> one(1, here.streams[0]);
    const array<int> two(1, here.streams[1]);
    here.sum(a, {&one, &two}, here.streams);
    here.sum(b, {&one, &two}, here.streams);
    const auto before = fake_nccl::launches().size();
    fake_nccl::hold_launches(true);
    CHECK(here.one_sum(a[0], one, here.streams[0]) == ncclInProgress);
    CHECK(here.one_sum(b[0], one, here.streams[0]) == ncclInProgress);
    fake_nccl::hold_launches(false);
    CHECK(settle(a[0]) == ncclSuccess);
    CHECK(settle(b[0]) == ncclSuccess);
    auto order = fake_nccl::launches();
    order.erase(order.begin(), order.begin() + std::ptrdiff_t(before));
    REQUIRE(order.size() == 2);
    seen.insert(order);
  }
  CHECK(seen.size() == 2);
}

TEST_CASE("blocking communicators wait in the call, and are made all at once") {
  cluster here(2);
  std::vector<ncclComm_t> comms(2);
  REQUIRE(ncclCommInitAll(comms.data(), 2, nullptr) == ncclSuccess);
  here.all = comms;
  const array<int> left(std::vector<int>{1}, here.streams[0]);
  const array<int> right(std::vector<int>{2}, here.streams[1]);
  ncclResult_t result = ncclInternalError;
  std::thread caller([&] { result = here.one_sum(comms[0], left, here.streams[0]); });
  CHECK(becomes([] { return fake_nccl::blocked_calls() == 1; }));
  CHECK(here.one_sum(comms[1], right, here.streams[1]) == ncclSuccess);
  caller.join();
  CHECK(result == ncclSuccess);
  CHECK(left.values()[0] == 3);
  CHECK(right.values()[0] == 3);
  int device = -1;
  CHECK(ncclCommCuDevice(comms[1], &device) == ncclSuccess);
  CHECK(device == 1);
}

TEST_CASE("with one rank nothing is in progress, and only a copy is made") {
  cluster here(1);
  const auto comms = here.make("alone", {0});
  cudaStream_t on = here.streams[0];
  const array<float> in(std::vector<float>{1, 2, 3}, on);
  const array<float> out(3, on);
  CHECK(ncclAllReduce(in.data(), out.data(), 3, ncclFloat32, ncclSum, comms[0], on) == ncclSuccess);
  CHECK(out.values() == std::vector<float>{1, 2, 3});
  CHECK(fake_nccl::launches().empty());
  fake_gpu::hold(on);
  CHECK(ncclAllReduce(in.data(), in.data(), 3, ncclFloat32, ncclSum, comms[0], on) == ncclSuccess);
  CHECK(idle(on));
  fake_gpu::release(on);
  ncclRedOp_t third;
  float factor = 0.5F;
  CHECK(ncclRedOpCreatePreMulSum(&third, &factor, ncclFloat32, ncclScalarHostImmediate, comms[0]) ==
        ncclSuccess);
  CHECK(ncclReduce(in.data(), out.data(), 3, ncclFloat32, third, 0, comms[0], on) == ncclSuccess);
  CHECK(out.values() == std::vector<float>{0.5F, 1, 1.5F});
  CHECK(ncclRedOpDestroy(third, comms[0]) == ncclSuccess);
  CHECK(ncclReduce(in.data(), out.data(), 3, ncclFloat32, third, 0, comms[0], on) ==
        ncclInvalidArgument);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclSend(in.data(), 3, ncclFloat32, 0, comms[0], on) == ncclSuccess);
  CHECK(ncclRecv(out.data(), 3, ncclFloat32, 0, comms[0], on) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);  // messages are a kernel all the same
  CHECK(settle(comms[0]) == ncclSuccess);
  CHECK(out.values() == std::vector<float>{1, 2, 3});
}

// ---- order -------------------------------------------------------------------------------------

TEST_CASE("a collective has its device to itself, so crossed orders deadlock and are found") {
  cluster here(2);
  const auto a = here.make("a", {0, 1});
  const auto b = here.make("b", {0, 1});
  const std::vector<cudaStream_t> beside = {make_stream(0), make_stream(1)};
  const array<int> one(std::vector<int>{1}, here.streams[0]);
  const array<int> two(std::vector<int>{1}, here.streams[1]);
  const array<int> three(std::vector<int>{1}, beside[0]);
  const array<int> four(std::vector<int>{1}, beside[1]);
  const auto all_over = [&] {
    for (cudaStream_t each : {here.streams[0], here.streams[1], beside[0], beside[1]}) {
      REQUIRE(cudaStreamSynchronize(each) == cudaSuccess);
    }
  };
  here.sum(a, {&one, &two}, here.streams);
  all_over();  // the streams are in no order
  here.sum(b, {&three, &four}, beside);
  all_over();
  REQUIRE(one.values()[0] == 2);
  REQUIRE(four.values()[0] == 2);
  const auto call = [](ncclComm_t comm, const array<int>& value, cudaStream_t on) {
    CHECK(cluster::one_sum(comm, value, on) == ncclInProgress);
    CHECK(settle(comm) == ncclSuccess);
  };
  const auto begun = [](int device) {
    return becomes([device] { return fake_gpu::occupied(device); });
  };
  SECTION("crossed") {
    call(a[0], one, here.streams[0]);
    CHECK(begun(0));
    call(b[1], four, beside[1]);
    CHECK(begun(1));
    call(b[0], three, beside[0]);
    call(a[1], two, here.streams[1]);
    CHECK(becomes([] { return !fake_nccl::cycles().empty(); }));
    CHECK(any_contains(fake_nccl::cycles(), "a waits for b waits for a"));
    for (cudaStream_t each : {here.streams[0], here.streams[1], beside[0], beside[1]}) {
      CHECK_FALSE(idle(each));
    }
    // Copies are done meanwhile, kernels are not.
    cudaStream_t third = make_stream(0);
    const array<int> value(std::vector<int>{5}, third);
    CHECK(value.values()[0] == 5);
    std::atomic<bool> ran{false};
    fake_gpu::launch(
        third, [](void* at) { static_cast<std::atomic<bool>*>(at)->store(true); }, &ran);
    std::this_thread::sleep_for(5ms);
    CHECK_FALSE(ran);
    here.abort_all();
    CHECK(becomes([&] { return ran.load(); }));
  }
  SECTION("the same order") {
    call(a[0], one, here.streams[0]);
    CHECK(begun(0));
    call(b[0], three, beside[0]);
    call(a[1], two, here.streams[1]);
    CHECK(becomes([&] { return idle(here.streams[1]); }));
    call(b[1], four, beside[1]);
    CHECK(becomes([&] { return idle(beside[0]) && idle(beside[1]); }));
    CHECK(fake_nccl::cycles().empty());
  }
  SECTION("the control: crossed, with room for both") {
    fake_gpu::occupy(false);
    call(a[0], one, here.streams[0]);
    call(b[1], four, beside[1]);
    call(b[0], three, beside[0]);
    call(a[1], two, here.streams[1]);
    CHECK(becomes([&] { return idle(here.streams[0]) && idle(beside[1]); }));
    CHECK(fake_nccl::cycles().empty());
  }
}

TEST_CASE("a cycle over three communicators is found, before and after they were used") {
  cluster here(3);
  const auto a = here.make("a", {0, 2});
  const auto b = here.make("b", {0, 1});
  const auto c = here.make("c", {1, 2});
  std::vector<array<int>*> values;
  for (int i = 0; i < 3; ++i) {
    values.push_back(new array<int>(std::vector<int>{1}, here.streams[std::size_t(i)]));
  }
  const auto on = [&](std::size_t device) { return here.streams[device]; };
  const bool used = GENERATE(false, true);
  CAPTURE(used);
  if (used) {
    here.sum(a, {values[0], values[2]}, {on(0), on(2)});
    here.sum(b, {values[0], values[1]}, {on(0), on(1)});
    here.sum(c, {values[1], values[2]}, {on(1), on(2)});
    for (cudaStream_t each : here.streams) REQUIRE(cudaStreamSynchronize(each) == cudaSuccess);
  }
  // Every pair of them is in order: a then b, b then c, c then a.
  const auto call = [&](ncclComm_t comm, std::size_t device) {
    CHECK(here.one_sum(comm, *values[device], on(device)) == ncclInProgress);
    if (used) CHECK(settle(comm) == ncclSuccess);
  };
  call(a[0], 0);
  call(b[1], 1);
  call(c[1], 2);
  if (used) {
    call(b[0], 0);
    call(c[0], 1);
    call(a[1], 2);
  }
  CHECK(becomes([] { return !fake_nccl::cycles().empty(); }));
  bool found = false;
  for (const std::string& one : fake_nccl::cycles()) {
    found |= one == "a waits for c waits for b waits for a";
  }
  CHECK(found);
  here.abort_all();
  for (auto* each : values) delete each;
}

TEST_CASE("a slow rank is no cycle and no mismatch") {
  pair here;
  const auto other = here.make("other", {0, 1});
  fake_nccl::delay_next(here.comms[1], 50'000);
  const auto start = std::chrono::steady_clock::now();
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  here.sum(other, {&here.left, &here.right}, here.streams);
  CHECK(here.left.values()[0] == 12);
  CHECK(std::chrono::steady_clock::now() - start >= 50ms);  // a lower bound holds on any machine
  CHECK(fake_nccl::cycles().empty());
  CHECK(state(here.comms[0]) == ncclSuccess);
}

TEST_CASE("a group joins its streams") {
  pair here;
  cudaStream_t second = make_stream(0);
  const array<int> more(std::vector<int>{10}, second);
  REQUIRE(more.values()[0] == 10);
  fake_gpu::hold(second);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclSuccess);
  CHECK(here.one_sum(here.comms[0], more, second) == ncclSuccess);
  CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclSuccess);
  CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t comm : here.comms) CHECK(settle(comm) == ncclSuccess);
  std::this_thread::sleep_for(5ms);
  CHECK_FALSE(idle(here.streams[0]));  // also for what is in the other stream before
  fake_gpu::release(second);
  CHECK(more.values()[0] == 16);
  CHECK(here.left.values()[0] == 6);
  CHECK(here.right.values()[0] == 16);
}

// ---- graphs ------------------------------------------------------------------------------------

namespace {

/// A sum of a pair captured as a graph of each device, and ready to be launched.
struct captured_sum {
  explicit captured_sum(pair& here, cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
    for (cudaStream_t stream : here.streams) {
      REQUIRE(cudaStreamBeginCapture(stream, mode) == cudaSuccess);
    }
    here.sum(here.comms, {&here.left, &here.right}, here.streams);
    for (std::size_t i = 0; i < 2; ++i) {
      cudaGraph_t graph = nullptr;
      REQUIRE(cudaStreamEndCapture(here.streams[i], &graph) == cudaSuccess);
      REQUIRE(cudaGraphInstantiate(&graphs[i], graph, 0) == cudaSuccess);
      REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
    }
  }
  ~captured_sum() {
    for (std::size_t i = 0; i < 2; ++i) destroy(i);
  }
  captured_sum(const captured_sum&) = delete;
  captured_sum& operator=(const captured_sum&) = delete;

  void launch(std::size_t i, cudaStream_t stream) const {
    REQUIRE(cudaGraphLaunch(graphs[i], stream) == cudaSuccess);
  }
  void destroy(std::size_t i) {
    if (graphs[i] != nullptr) CHECK(cudaGraphExecDestroy(graphs[i]) == cudaSuccess);
    graphs[i] = nullptr;
  }
  cudaGraphExec_t graphs[2] = {nullptr, nullptr};
};

}  // namespace

TEST_CASE("a captured collective runs with each launch of its graph, and not before") {
  pair here;
  fake_nccl::clear_faults();
  const captured_sum sum(here);
  CHECK(here.left.values()[0] == 3);
  CHECK(fake_nccl::pending_kernels(here.comms[0]) == 0);
  for (int i = 0; i < 3; ++i) {
    sum.launch(0, here.streams[0]);
    sum.launch(1, here.streams[1]);
  }
  CHECK(here.left.values()[0] == 24);  // doubled by each launch
  CHECK(here.right.values()[0] == here.left.values()[0]);
  // Beside others of the same communicator, in the order of the calls.
  sum.launch(0, here.streams[0]);
  sum.launch(1, here.streams[1]);
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  CHECK(here.left.values()[0] == 96);
  CHECK(fake_nccl::faults().empty());
}

TEST_CASE("a graph whose counterpart is not launched waits with the device, until an abort") {
  pair here;
  captured_sum sum(here);
  sum.launch(0, here.streams[0]);
  CHECK(becomes([] { return fake_gpu::occupied(0); }));
  CHECK(fake_nccl::pending_kernels(here.comms[0]) == 1);
  const cudaEvent_t behind = record(0, here.streams[0]);
  CHECK_FALSE(done(behind));
  std::atomic<bool> over{false};
  ncclResult_t ended = ncclInProgress;
  std::thread aborter([&] {
    ended = ncclCommAbort(here.comms[0]);
    over = true;
  });
  CHECK(becomes([&] { return done(behind); }));
  CHECK_FALSE(over);  // an abort waits for graphs
  sum.destroy(0);
  aborter.join();
  CHECK(ended == ncclSuccess);
  here.forget(here.comms[0]);
  CHECK(static_cast<unsigned>(here.left.values()[0]) == 0xdbdbdbdb);
}

TEST_CASE("finalizing is in progress while a graph with a collective is alive") {
  pair here;
  captured_sum sum(here);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  for (ncclComm_t comm : here.comms) CHECK(ncclCommFinalize(comm) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  std::this_thread::sleep_for(10ms);
  for (ncclComm_t comm : here.comms) CHECK(state(comm) == ncclInProgress);
  sum.destroy(0);
  std::this_thread::sleep_for(10ms);
  for (ncclComm_t comm : here.comms) CHECK(state(comm) == ncclInProgress);
  sum.destroy(1);
  for (ncclComm_t comm : here.comms) CHECK(settle(comm) == ncclSuccess);
}

TEST_CASE("a capture that ends before its collective is in it is a fault") {
  pair here;
  fake_nccl::clear_faults();
  const auto capture = [&](bool in_time) {
    for (cudaStream_t stream : here.streams) {
      REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed) == cudaSuccess);
    }
    fake_nccl::hold_launches(true);
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
    CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
    const auto go_on = [&] {
      fake_nccl::hold_launches(false);
      for (ncclComm_t comm : here.comms) CHECK(settle(comm) == ncclSuccess);
    };
    if (in_time) go_on();
    for (cudaStream_t stream : here.streams) {
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
      CHECK(cudaGraphDestroy(graph) == cudaSuccess);
    }
    if (!in_time) go_on();
  };
  capture(true);
  CHECK(fake_nccl::faults().empty());
  capture(false);
  CHECK(any_contains(fake_nccl::faults(), "ended before the collective"));
  fake_nccl::clear_faults();
}

TEST_CASE("several streams of a call are captured together") {
  pair here;
  cudaStream_t second = make_stream(0);
  const array<int> more(std::vector<int>{10}, second);
  REQUIRE(more.values()[0] == 10);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  cudaEvent_t begin = record(0, here.streams[0]);
  cudaEvent_t end = record(0, second);
  REQUIRE(cudaStreamSynchronize(here.streams[0]) == cudaSuccess);
  REQUIRE(cudaStreamSynchronize(second) == cudaSuccess);
  const auto post = [&] {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclSuccess);
    const ncclResult_t other = here.one_sum(here.comms[0], more, second);
    CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclSuccess);
    CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclSuccess);
    const ncclResult_t all = ncclGroupEnd();
    CHECK(all == (other == ncclSuccess ? ncclInProgress : other));
    for (ncclComm_t comm : here.comms) CHECK(settle(comm) == ncclSuccess);
    return other;
  };
  REQUIRE(cudaStreamBeginCapture(here.streams[0], cudaStreamCaptureModeRelaxed) == cudaSuccess);
  bool taken = false;
  SECTION("by one graph") {
    taken = true;
    REQUIRE(cudaEventRecord(begin, here.streams[0]) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(second, begin, 0) == cudaSuccess);
    CHECK(post() == ncclSuccess);
    REQUIRE(cudaEventRecord(end, second) == cudaSuccess);
    REQUIRE(cudaStreamWaitEvent(here.streams[0], end, 0) == cudaSuccess);
  }
  SECTION("or refused") { CHECK(post() == ncclInvalidUsage); }
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(here.streams[0], &graph) == cudaSuccess);
  cudaGraphExec_t made = nullptr;
  REQUIRE(cudaGraphInstantiate(&made, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(made, here.streams[0]) == cudaSuccess);
  CHECK(here.left.values()[0] == (taken ? 6 : 3));
  CHECK(more.values()[0] == (taken ? 16 : 10));
  REQUIRE(cudaStreamSynchronize(here.streams[0]) == cudaSuccess);
  CHECK(cudaGraphExecDestroy(made) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("with one rank the copy is captured") {
  cluster here(1);
  const auto alone = here.make("alone", {0});
  const array<int> from(std::vector<int>{5}, here.streams[0]);
  const array<int> to(std::vector<int>{0}, here.streams[0]);
  REQUIRE(cudaStreamSynchronize(here.streams[0]) == cudaSuccess);
  REQUIRE(cudaStreamBeginCapture(here.streams[0], cudaStreamCaptureModeRelaxed) == cudaSuccess);
  CHECK(ncclAllReduce(from.data(), to.data(), 1, ncclInt32, ncclSum, alone[0], here.streams[0]) ==
        ncclSuccess);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(here.streams[0], &graph) == cudaSuccess);
  CHECK(to.values()[0] == 0);
  cudaGraphExec_t made = nullptr;
  REQUIRE(cudaGraphInstantiate(&made, graph, 0) == cudaSuccess);
  REQUIRE(cudaGraphLaunch(made, here.streams[0]) == cudaSuccess);
  CHECK(to.values()[0] == 5);
  CHECK(cudaGraphExecDestroy(made) == cudaSuccess);
  CHECK(cudaGraphDestroy(graph) == cudaSuccess);
}

TEST_CASE("a communicator's kernels run in the order of the calls, in whichever streams") {
  pair here;
  cudaStream_t second = make_stream(0);
  const array<int> late(std::vector<int>{10}, second);
  fake_gpu::hold(here.streams[0]);
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  here.sum(here.comms, {&late, &here.right}, {second, here.streams[1]});
  std::this_thread::sleep_for(5ms);
  CHECK_FALSE(idle(second));
  fake_gpu::release(here.streams[0]);
  CHECK(here.left.values()[0] == 6);
  CHECK(late.values()[0] == 16);
}

TEST_CASE("groups refuse what NCCL refuses in them") {
  pair here;
  const auto blocking = here.make("blocking", {0, 1}, true);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  SECTION("creation and collectives") {
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclSuccess);
    ncclComm_t made = nullptr;
    CHECK(ncclCommSplit(here.comms[1], 0, 0, &made, nullptr) == ncclSuccess);
    here.all.push_back(made);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
  }
  SECTION("blocking and non-blocking communicators") {
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclSuccess);
    CHECK(here.one_sum(blocking[1], here.right, here.streams[1]) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
  }
  SECTION("a message to oneself that nobody receives") {
    CHECK(ncclSend(here.left.data(), 1, ncclInt32, 0, here.comms[0], here.streams[0]) ==
          ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInvalidUsage);
  }
  SECTION("an error inside, and then all is dropped") {
    CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclSuccess);
    CHECK(ncclBroadcast(here.left.data(), here.left.data(), 1, ncclInt32, 7, here.comms[0],
                        here.streams[0]) == ncclInvalidArgument);
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    std::this_thread::sleep_for(5ms);
    CHECK(idle(here.streams[1]));
  }
  CHECK(ncclGroupEnd() == ncclInvalidUsage);  // not open any more
}

// ---- failures ----------------------------------------------------------------------------------

TEST_CASE("an abort waits for kernels, and leaves ready events over ruined data") {
  pair here;
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
  CHECK(settle(here.comms[0]) == ncclSuccess);
  const cudaEvent_t behind = record(0, here.streams[0]);
  CHECK_FALSE(done(behind));
  CHECK(fake_nccl::pending_kernels(here.comms[0]) == 1);
  SECTION("one that runs") {
    CHECK(ncclCommAbort(here.comms[0]) == ncclSuccess);
    here.forget(here.comms[0]);
    CHECK(becomes([&] { return done(behind); }));
    CHECK(static_cast<unsigned>(here.left.values()[0]) == 0xdbdbdbdb);
    // The peer notices nothing.
    CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
    CHECK(settle(here.comms[1]) == ncclSuccess);
    std::this_thread::sleep_for(20ms);
    CHECK(state(here.comms[1]) == ncclSuccess);
    CHECK_FALSE(idle(here.streams[1]));
  }
  SECTION("one that waits for the device, until that is free") {
    const auto alone = here.make("other", {1});
    CHECK(state(alone[0]) == ncclSuccess);
    cudaStream_t beside = make_stream(0);
    const array<int> value(std::vector<int>{1}, beside);
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    REQUIRE(cudaSetDevice(0) == cudaSuccess);
    CHECK(ncclCommAbort(here.comms[0]) == ncclSuccess);
    here.forget(here.comms[0]);
    CHECK(becomes([&] { return done(behind); }));
    const auto a = here.make("a", {0});
    const auto b = here.make("b", {0});
    const auto self = [&](ncclComm_t comm, cudaStream_t on) {
      REQUIRE(ncclGroupStart() == ncclSuccess);
      CHECK(ncclSend(value.data(), 1, ncclInt32, 0, comm, on) == ncclSuccess);
      CHECK(ncclRecv(value.data(), 1, ncclInt32, 0, comm, on) == ncclSuccess);
      CHECK(ncclGroupEnd() == ncclInProgress);
      CHECK(settle(comm) == ncclSuccess);
    };
    fake_nccl::hang_next(a[0]);
    self(a[0], here.streams[0]);
    CHECK(becomes([] { return fake_gpu::occupied(0); }));
    self(b[0], beside);
    std::atomic<bool> over{false};
    std::thread aborter([&] {
      ncclCommAbort(b[0]);
      over = true;
    });
    CHECK(becomes([] { return fake_nccl::blocked_calls() == 1; }));
    std::this_thread::sleep_for(10ms);
    CHECK_FALSE(over);
    CHECK(ncclCommAbort(a[0]) == ncclSuccess);
    aborter.join();
    here.forget(a[0]);
    here.forget(b[0]);
  }
}

TEST_CASE("an asynchronous error is told, and kernels stay until the abort") {
  pair here;
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
  CHECK(settle(here.comms[0]) == ncclSuccess);
  fake_nccl::set_async_error(here.comms[0], ncclRemoteError);
  CHECK(state(here.comms[0]) == ncclRemoteError);
  CHECK_THAT(ncclGetLastError(here.comms[0]), ContainsSubstring("asynchronous error"));
  CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
  CHECK(settle(here.comms[1]) == ncclSuccess);
  std::this_thread::sleep_for(10ms);
  CHECK_FALSE(idle(here.streams[0]));  // though the peer has called by now
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclRemoteError);
  CHECK(ncclCommAbort(here.comms[0]) == ncclSuccess);
  here.forget(here.comms[0]);
  CHECK(becomes([&] { return idle(here.streams[0]); }));
}

TEST_CASE("calls fail and collectives hang as a test wants") {
  pair here;
  fake_nccl::fail_next("ncclAllReduce", ncclSystemError);
  const auto before = fake_nccl::calls("ncclAllReduce");
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclSystemError);
  CHECK(fake_nccl::calls("ncclAllReduce") == before + 1);
  CHECK(idle(here.streams[0]));
  fake_nccl::fail_next("ncclGroupEnd", ncclInternalError);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInternalError);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  fake_nccl::hang_next(here.comms[1]);
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  std::this_thread::sleep_for(20ms);
  for (cudaStream_t each : here.streams) CHECK_FALSE(idle(each));
  for (ncclComm_t comm : here.comms) CHECK(state(comm) == ncclSuccess);  // nobody can tell
  here.abort_all();
  for (cudaStream_t each : here.streams) CHECK(becomes([&] { return idle(each); }));
}

TEST_CASE("a call stays in progress as a test wants, until the abort") {
  pair here;
  fake_nccl::stall_next("ncclAllReduce");
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
  CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
  CHECK(settle(here.comms[1]) == ncclSuccess);
  std::this_thread::sleep_for(10ms);
  CHECK(state(here.comms[0]) == ncclInProgress);
  CHECK(idle(here.streams[0]));
  CHECK(ncclCommAbort(here.comms[0]) == ncclSuccess);
  here.forget(here.comms[0]);
  fake_nccl::stall_next("ncclCommFinalize");
  CHECK(ncclCommAbort(here.comms[1]) == ncclSuccess);
  here.forget(here.comms[1]);
  const auto alone = here.make("alone", {0});
  CHECK(ncclCommFinalize(alone[0]) == ncclInProgress);
  std::this_thread::sleep_for(10ms);
  CHECK(state(alone[0]) == ncclInProgress);
}

TEST_CASE("a device that breaks ends its kernels, and not those of others") {
  pair here;
  fake_nccl::hang_next(here.comms[0]);
  here.sum(here.comms, {&here.left, &here.right}, here.streams);
  fake_gpu::break_device(0, cudaErrorLaunchFailure);
  CHECK(becomes([&] { return fake_nccl::pending_kernels(here.comms[0]) == 0; }));
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclUnhandledCudaError);
  CHECK_FALSE(idle(here.streams[1]));
  here.abort_all();
  CHECK(becomes([&] { return idle(here.streams[1]); }));
}

TEST_CASE("memory that a device cannot reach breaks it when the collective runs") {
  pair here;
  std::vector<int> pageable(1);
  CHECK(ncclAllReduce(pageable.data(), pageable.data(), 1, ncclInt32, ncclSum, here.comms[0],
                      here.streams[0]) == ncclInProgress);
  CHECK(settle(here.comms[0]) == ncclSuccess);
  CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
  CHECK(becomes([&] { return cudaStreamQuery(here.streams[0]) == cudaErrorIllegalAddress; }));
  CHECK(cudaStreamQuery(here.streams[1]) == cudaErrorNotReady);
  static_cast<void>(cudaGetLastError());
}

TEST_CASE("buffers that overlap otherwise than in place are faults") {
  pair here;
  const array<int> values(8, here.streams[0]);
  const auto call = [&](auto function) {
    fake_nccl::clear_faults();
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(function() == ncclSuccess);
    fake_nccl::fail_next("ncclGroupEnd", ncclInternalError);  // drops it
    CHECK(ncclGroupEnd() == ncclInternalError);
    return any_contains(fake_nccl::faults(), "overlap");
  };
  int* const at = values.data();
  const ncclComm_t comm = here.comms[0];
  const cudaStream_t on = here.streams[0];
  CHECK(call([&] { return ncclAllReduce(at, at + 1, 2, ncclInt32, ncclSum, comm, on); }));
  CHECK_FALSE(call([&] { return ncclAllReduce(at, at + 2, 2, ncclInt32, ncclSum, comm, on); }));
  CHECK(call([&] { return ncclAllGather(at + 2, at, 2, ncclInt32, comm, on); }));
  CHECK_FALSE(call([&] { return ncclAllGather(at, at, 2, ncclInt32, comm, on); }));
  CHECK(call([&] { return ncclReduceScatter(at, at + 2, 2, ncclInt32, ncclSum, comm, on); }));
  CHECK(call([&] { return ncclAlltoAll(at, at, 2, ncclInt32, comm, on); }));
}

TEST_CASE("a collective on registered memory is there on all ranks, at one offset") {
  pair here;
  std::vector<int*> memory;
  std::vector<void*> handles(2);
  for (std::size_t i = 0; i < 2; ++i) {
    void* made = nullptr;
    REQUIRE(cudaSetDevice(static_cast<int>(i)) == cudaSuccess);
    REQUIRE(ncclMemAlloc(&made, 256) == ncclSuccess);
    REQUIRE(ncclCommRegister(here.comms[i], made, 256, &handles[i]) == ncclSuccess);
    REQUIRE(cudaMemsetAsync(made, 0, 256, here.streams[i]) == cudaSuccess);
    memory.push_back(static_cast<int*>(made));
  }
  const auto sum = [&](int* left, int* right) {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    int* const at[] = {left, right};
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(ncclAllReduce(at[i], at[i], 4, ncclInt32, ncclSum, here.comms[i], here.streams[i]) ==
            ncclSuccess);
    }
    CHECK(ncclGroupEnd() == ncclInProgress);
    for (ncclComm_t comm : here.comms) static_cast<void>(settle(comm));
  };
  const auto before = fake_nccl::calls_in_registered_memory();
  const auto is_mismatch = [&](const std::string& text) {
    for (ncclComm_t comm : here.comms) {
      CHECK(becomes([&] { return state(comm) == ncclInvalidUsage; }));
      CHECK_THAT(ncclGetLastError(comm), ContainsSubstring(text));
    }
  };
  SECTION("at one offset") {
    sum(memory[0] + 8, memory[1] + 8);
    for (cudaStream_t each : here.streams) CHECK(becomes([&] { return idle(each); }));
    CHECK(fake_nccl::calls_in_registered_memory() == before + 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(ncclCommDeregister(here.comms[i], handles[i]) == ncclSuccess);
      CHECK(ncclMemFree(memory[i]) == ncclSuccess);
    }
    CHECK(fake_nccl::faults().empty());
  }
  SECTION("at two") {
    sum(memory[0], memory[1] + 8);
    is_mismatch("at 32 of registered memory");
  }
  SECTION("on one rank alone") {
    const array<int> other(8, here.streams[1]);
    sum(memory[0], other.data());
    CHECK(fake_nccl::calls_in_registered_memory() == before + 1);
    is_mismatch("at 0 of registered memory");
  }
  SECTION("other memory of another communicator is not registered") {
    const auto other = here.make("other", {0, 1});
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(ncclAllReduce(memory[i], memory[i], 4, ncclInt32, ncclSum, other[i], here.streams[i]) ==
            ncclInProgress);
    }
    for (ncclComm_t comm : other) CHECK(settle(comm) == ncclSuccess);
    CHECK(fake_nccl::calls_in_registered_memory() == before);
  }
  SECTION("what is registered is not freed") {
    CHECK(ncclMemFree(memory[0]) == ncclSuccess);
    CHECK(any_contains(fake_nccl::faults(), "ncclMemFree of memory that is registered for pair"));
    fake_nccl::clear_faults();
  }
  SECTION("nothing is registered while a collective is on the device") {
    CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
    CHECK(settle(here.comms[0]) == ncclSuccess);  // launched, and waits for its peer
    void* handle = nullptr;
    CHECK(ncclCommRegister(here.comms[0], memory[0], 64, &handle) == ncclSuccess);
    CHECK(any_contains(fake_nccl::faults(), "ncclCommRegister with a collective on the device"));
    fake_nccl::clear_faults();
  }
}

TEST_CASE("different calls of the ranks are reported and do not hang in silence") {
  pair here;
  const array<int> left(8, here.streams[0]);
  const array<int> right(8, here.streams[1]);
  const auto call = [&](int rank, auto function) {
    const ncclComm_t comm = here.comms[std::size_t(rank)];
    CHECK(function(comm, (rank == 0 ? left : right).data(), here.streams[std::size_t(rank)]) ==
          ncclInProgress);
  };
  const auto sum = [&](std::size_t count, ncclDataType_t type, ncclRedOp_t op) {
    return [=](ncclComm_t comm, int* at, cudaStream_t on) {
      return ncclAllReduce(at, at, count, type, op, comm, on);
    };
  };
  const auto broadcast = [](int root) {
    return [=](ncclComm_t comm, int* at, cudaStream_t on) {
      return ncclBroadcast(at, at, 1, ncclInt32, root, comm, on);
    };
  };
  const auto send = [](std::size_t count, ncclDataType_t type) {
    return [=](ncclComm_t comm, int* at, cudaStream_t on) {
      int rank = 0;
      CHECK(ncclCommUserRank(comm, &rank) == ncclSuccess);
      return ncclSend(at, count, type, 1 - rank, comm, on);
    };
  };
  const auto receive = [](std::size_t count) {
    return [=](ncclComm_t comm, int* at, cudaStream_t on) {
      int rank = 0;
      CHECK(ncclCommUserRank(comm, &rank) == ncclSuccess);
      return ncclRecv(at, count, ncclInt32, 1 - rank, comm, on);
    };
  };
  const auto met = [&] {  // so that messages are launched at once
    REQUIRE(ncclGroupStart() == ncclSuccess);
    CHECK(send(1, ncclInt32)(here.comms[0], left.data(), here.streams[0]) == ncclSuccess);
    CHECK(receive(1)(here.comms[1], right.data(), here.streams[1]) == ncclSuccess);
    CHECK(ncclGroupEnd() == ncclInProgress);
    for (ncclComm_t comm : here.comms) CHECK(settle(comm) == ncclSuccess);
    for (cudaStream_t each : here.streams) CHECK(becomes([&] { return idle(each); }));
  };
  std::string text = "mismatch: ";
  SECTION("another verb") {
    call(0, sum(1, ncclInt32, ncclSum));
    call(1, broadcast(0));
    text = "mismatch: rank 1 called broadcast of 1 i32, root 0, rank 0 all_reduce of 1 i32, sum";
  }
  SECTION("another count") {
    call(0, sum(1, ncclInt32, ncclSum));
    call(1, sum(2, ncclInt32, ncclSum));
  }
  SECTION("another type") {
    call(0, sum(1, ncclInt32, ncclSum));
    call(1, sum(1, ncclFloat32, ncclSum));
  }
  SECTION("another operation") {
    call(0, sum(1, ncclInt32, ncclSum));
    call(1, sum(1, ncclInt32, ncclMax));
  }
  SECTION("another root") {
    call(0, broadcast(0));
    call(1, broadcast(1));
  }
  SECTION("a message of another length") {
    call(0, send(1, ncclInt32));
    call(1, receive(2));
  }
  SECTION("a message of another type") {
    call(0, send(1, ncclFloat32));
    call(1, receive(1));
  }
  SECTION("a collective and a message, the first of the pair") {
    call(0, sum(1, ncclInt32, ncclSum));
    call(1, send(1, ncclInt32));
  }
  SECTION("a collective and a message") {
    met();
    call(0, sum(1, ncclInt32, ncclSum));
    call(1, receive(1));
  }
  SECTION("two that send") {
    call(0, send(1, ncclInt32));
    call(1, send(1, ncclInt32));
  }
  SECTION("two that receive") {
    met();
    call(0, receive(1));
    call(1, receive(1));
  }
  SECTION("one that has finished") {
    call(0, sum(1, ncclInt32, ncclSum));
    CHECK(settle(here.comms[0]) == ncclSuccess);
    CHECK(ncclCommFinalize(here.comms[1]) == ncclInProgress);
    CHECK(becomes([&] { return state(here.comms[1]) == ncclRemoteError; }));
    CHECK(becomes([&] { return state(here.comms[0]) == ncclInvalidUsage; }));
    text = "which has finalized";
  }
  for (ncclComm_t comm : here.comms) {
    CHECK(becomes([&] { return state(comm) != ncclSuccess && state(comm) != ncclInProgress; }));
  }
  CHECK_THAT(ncclGetLastError(here.comms[0]), ContainsSubstring(text));
  CHECK(fake_nccl::cycles().empty());
  here.abort_all();
  for (cudaStream_t each : here.streams) CHECK(becomes([&] { return idle(each); }));
}

// ---- data --------------------------------------------------------------------------------------

namespace {

template <class T>
std::vector<T> reduced(pair& here, ncclDataType_t type, ncclRedOp_t op, T first, T second) {
  const array<T> left(std::vector<T>{first}, here.streams[0]);
  const array<T> right(std::vector<T>{second}, here.streams[1]);
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(ncclAllReduce(left.data(), left.data(), 1, type, op, here.comms[0], here.streams[0]) ==
        ncclSuccess);
  CHECK(ncclAllReduce(right.data(), right.data(), 1, type, op, here.comms[1], here.streams[1]) ==
        ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t comm : here.comms) REQUIRE(settle(comm) == ncclSuccess);
  return {left.values()[0], right.values()[0]};
}

template <class T>
void check_type(pair& here, ncclDataType_t type, T two, T six, T eight, T twelve, T four) {
  CAPTURE(int(type));
  CHECK(reduced(here, type, ncclSum, two, six) == std::vector<T>(2, eight));
  CHECK(reduced(here, type, ncclProd, two, six) == std::vector<T>(2, twelve));
  CHECK(reduced(here, type, ncclMax, two, six) == std::vector<T>(2, six));
  CHECK(reduced(here, type, ncclMin, two, six) == std::vector<T>(2, two));
  CHECK(reduced(here, type, ncclAvg, two, six) == std::vector<T>(2, four));
}

}  // namespace

TEST_CASE("all types and operations") {
  pair here;
  check_type<std::int8_t>(here, ncclInt8, 2, 6, 8, 12, 4);
  check_type<std::uint8_t>(here, ncclUint8, 2, 6, 8, 12, 4);
  check_type<std::int32_t>(here, ncclInt32, 2, 6, 8, 12, 4);
  check_type<std::uint32_t>(here, ncclUint32, 2, 6, 8, 12, 4);
  check_type<std::int64_t>(here, ncclInt64, 2, 6, 8, 12, 4);
  check_type<std::uint64_t>(here, ncclUint64, 2, 6, 8, 12, 4);
  check_type<float>(here, ncclFloat32, 2, 6, 8, 12, 4);
  check_type<double>(here, ncclFloat64, 2, 6, 8, 12, 4);
  check_type<std::uint16_t>(here, ncclFloat16, 0x4000, 0x4600, 0x4800, 0x4a00, 0x4400);
  check_type<std::uint16_t>(here, ncclBfloat16, 0x4000, 0x40c0, 0x4100, 0x4140, 0x4080);
  check_type<std::uint8_t>(here, ncclFloat8e4m3, 0x40, 0x4c, 0x50, 0x54, 0x48);
  check_type<std::uint8_t>(here, ncclFloat8e5m2, 0x40, 0x46, 0x48, 0x4a, 0x44);
  // Rounding to even, overflow, and the smallest numbers of 16 bits.
  using bits = std::vector<std::uint16_t>;
  CHECK(reduced<std::uint16_t>(here, ncclFloat16, ncclSum, 0x6800, 0x3c00) == bits(2, 0x6800));
  CHECK(reduced<std::uint16_t>(here, ncclFloat16, ncclSum, 0x6801, 0x3c00) == bits(2, 0x6802));
  CHECK(reduced<std::uint16_t>(here, ncclFloat16, ncclSum, 0x7bff, 0x7bff) == bits(2, 0x7c00));
  CHECK(reduced<std::uint16_t>(here, ncclFloat16, ncclSum, 0x0001, 0x0002) == bits(2, 0x0003));
  CHECK(reduced<std::uint16_t>(here, ncclFloat16, ncclSum, 0x03ff, 0x0001) == bits(2, 0x0400));
  CHECK(reduced<std::uint16_t>(here, ncclBfloat16, ncclSum, 0x4380, 0x3f80) == bits(2, 0x4380));
  // Integers wrap and are divided as integers.
  CHECK(reduced<std::int32_t>(here, ncclInt32, ncclAvg, -3, 0) == std::vector<std::int32_t>(2, -1));
  CHECK(reduced<std::int32_t>(here, ncclInt32, ncclSum, INT32_MAX, 1) ==
        std::vector<std::int32_t>(2, INT32_MIN));
}

TEST_CASE("a sum multiplied before, by a value of the host or of the device") {
  pair here;
  ncclRedOp_t ops[2];
  float half = 0.5F;
  const array<float> quarter(std::vector<float>{0.25F}, here.streams[1]);
  CHECK(ncclRedOpCreatePreMulSum(&ops[0], &half, ncclFloat32, ncclScalarHostImmediate,
                                 here.comms[0]) == ncclSuccess);
  half = 100;  // it was read in the call
  CHECK(ncclRedOpCreatePreMulSum(&ops[1], quarter.data(), ncclFloat32, ncclScalarDevice,
                                 here.comms[1]) == ncclSuccess);
  CHECK(ops[0] >= ncclNumOps);
  const array<float> left(std::vector<float>{2}, here.streams[0]);
  const array<float> right(std::vector<float>{8}, here.streams[1]);
  const auto call = [&](std::size_t i, const array<float>& at, ncclDataType_t type) {
    return ncclAllReduce(at.data(), at.data(), 1, type, ops[i], here.comms[i], here.streams[i]);
  };
  CHECK(call(0, left, ncclFloat64) == ncclInvalidArgument);  // for another type
  REQUIRE(ncclGroupStart() == ncclSuccess);
  CHECK(call(0, left, ncclFloat32) == ncclSuccess);
  CHECK(ncclRedOpDestroy(ops[0], here.comms[0]) == ncclSuccess);  // its last call has returned
  CHECK(call(1, right, ncclFloat32) == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclInProgress);
  for (ncclComm_t comm : here.comms) CHECK(settle(comm) == ncclSuccess);
  CHECK(left.values()[0] == 3);
  CHECK(right.values()[0] == 3);
}

TEST_CASE("nothing to do launches nothing, and memory of NCCL is device memory") {
  pair here;
  const auto before = fake_nccl::launches().size();
  CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclInt32, ncclSum, here.comms[0], here.streams[0]) ==
        ncclSuccess);
  CHECK(fake_nccl::launches().size() == before);
  void* memory = nullptr;
  void* handle = nullptr;
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  CHECK(ncclMemAlloc(&memory, 64) == ncclSuccess);
  CHECK(ncclCommRegister(here.comms[0], memory, 64, &handle) == ncclSuccess);
  CHECK(ncclCommDeregister(here.comms[0], handle) == ncclSuccess);
  CHECK(ncclCommDeregister(here.comms[0], handle) == ncclInvalidArgument);
  cudaPointerAttributes found = {};
  CHECK(cudaPointerGetAttributes(&found, memory) == cudaSuccess);
  CHECK(found.type == cudaMemoryTypeDevice);
  CHECK(ncclMemFree(memory) == ncclSuccess);
  // Giving memory back waits for the device, so also for a collective that waits for a peer.
  CHECK(ncclMemAlloc(&memory, 64) == ncclSuccess);
  CHECK(here.one_sum(here.comms[0], here.left, here.streams[0]) == ncclInProgress);
  CHECK(settle(here.comms[0]) == ncclSuccess);
  ncclResult_t result = ncclInternalError;
  std::thread caller([&] {
    cudaSetDevice(0);
    result = ncclMemFree(memory);
  });
  CHECK(becomes([] { return fake_gpu::blocked_calls() == 1; }));
  CHECK(here.one_sum(here.comms[1], here.right, here.streams[1]) == ncclInProgress);
  caller.join();
  CHECK(result == ncclSuccess);
}
