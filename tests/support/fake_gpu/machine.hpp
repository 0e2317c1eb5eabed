// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the files of the double of CUDA's runtime share: the state of all devices, under one
/// mutex, and how work is queued. Not for tests.

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace fake_gpu {

using lock = std::unique_lock<std::mutex>;

/// What a stream does, on its thread. It may unlock while it does.
using work = std::function<void(lock&)>;
/// Makes the work of one launch of a graph, each with a number of its own. With the machine locked.
using work_of_launch = std::function<work(std::uint64_t launch)>;

struct stream_object;
struct capture_object;

/// Whether the work before a mark is done. Guarded by the machine's mutex.
struct mark {
  bool reached = false;
  std::chrono::steady_clock::time_point when{};
};

/// What a captured stream was given: work, or one side of an edge to another stream.
struct graph_node {
  enum { work, record, wait } kind;
  std::size_t lane;
  std::size_t edge = 0;
  work_of_launch make = nullptr;
};

struct graph_object {
  std::vector<int> devices;  // of the lanes, one for each captured stream, the first the origin
  std::size_t edges = 0;
  std::vector<graph_node> nodes;  // in the order of the calls
};

/// Streams of its own run the lanes of a graph.
struct executable_graph {
  std::shared_ptr<const graph_object> graph;
  std::vector<std::shared_ptr<stream_object>> lanes;
};

/// How much of each lane is known to come before. What is not there has 0.
using lane_clock = std::vector<std::size_t>;

struct capture_object {
  struct lane {
    std::shared_ptr<stream_object> stream;
    lane_clock before;
  };
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  bool spoiled = false;
  bool ended = false;
  std::vector<lane> lanes;
  std::shared_ptr<graph_object> graph = std::make_shared<graph_object>();
};

struct event_object {
  int device = 0;
  std::uint32_t generation = 0;
  bool timed = true;
  std::shared_ptr<mark> last;  // null: never recorded, and so "done"
  // Of the capture that it was recorded in last, if it was.
  std::shared_ptr<capture_object> capture;
  std::size_t edge = 0;
  lane_clock before;
};

struct allocation {
  char* address = nullptr;  // what the program sees; without access, if on a device
  char* alias = nullptr;    // where it can be touched
  std::size_t bytes = 0;
  std::size_t mapped = 0;
  int device = 0;
  std::uint32_t generation = 0;
  cudaMemoryType type = cudaMemoryTypeUnregistered;
  bool freed = false;  // by the order of the stream
};

struct stream_object {
  int device = 0;
  std::uint32_t generation = 0;
  int priority = 0;
  bool destroyed = false;
  bool held = false;
  bool busy = false;
  bool ending = false;
  bool of_graph = false;  // runs a lane of an executable graph
  std::shared_ptr<capture_object> capture;
  std::size_t lane = 0;  // of the capture
  std::uint64_t number = 0;
  int announced = 0;  // collectives that a call of NCCL is yet to queue here
  std::deque<work> queue;
  std::thread worker;
};

struct device_object {
  cudaError_t sticky = cudaSuccess;
  std::uint32_t generation = 0;
  unsigned delay = 0;
  std::shared_ptr<stream_object> legacy;
  std::int64_t bus_id = 0;
  std::int64_t uuid = 0;              // 0: as the bus id
  bool taken = false;                 // its multiprocessors, by a collective
  std::deque<std::uint64_t> waiting;  // for them
};

struct machine {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<device_object> devices;
  cudaError_t count_error = cudaSuccess;
  bool unloading = false;
  int blocked = 0;
  std::vector<std::shared_ptr<capture_object>> captures;
  std::map<void*, std::shared_ptr<graph_object>> graphs;
  std::map<void*, std::shared_ptr<executable_graph>> executables;
  std::map<void*, std::shared_ptr<stream_object>> streams;
  std::map<void*, std::shared_ptr<event_object>> events;
  std::vector<std::shared_ptr<void>> graveyard;  // so that no handle's address is used again
  std::map<char*, allocation> memory;
  std::map<std::string, std::pair<cudaError_t, int>> failures;
  std::map<std::string, std::uint64_t> calls;
  std::vector<std::string> faults;
  std::uint64_t tickets = 0;
  bool occupy = true;
  void (*restarted)() = nullptr;
};

machine& the();

extern thread_local cudaError_t last_error;
extern thread_local int current_device;
extern thread_local cudaStreamCaptureMode capture_mode;
extern thread_local stream_object* working_for;  // on the stream's own thread

[[nodiscard]] cudaError_t fail(cudaError_t code);

/// What every call begins with: it is counted, and may be made to fail.
cudaError_t enter(const char* function, lock&);
[[nodiscard]] cudaError_t device_ready(int device);
[[nodiscard]] device_object& at(int device);
[[nodiscard]] std::shared_ptr<stream_object> make_stream(int device, int priority);

/// The stream behind a handle of this context, or null.
[[nodiscard]] std::shared_ptr<stream_object> find(cudaStream_t handle);
[[nodiscard]] std::shared_ptr<event_object> find(cudaEvent_t handle);

/// What a call that queues work answers, before it looks at what the work is.
[[nodiscard]] cudaError_t usable(const stream_object& stream);
/// Queues work, or makes it a node of the graph that is captured.
void push(stream_object& stream, work what);
/// The same for work that differs from launch to launch.
void push_each(stream_object& stream, const work_of_launch& make);
/// A wait on the stream's thread.
[[nodiscard]] work wait_for(std::shared_ptr<mark> target);

/// Waits until the device has nothing to do, as a blocking call of CUDA does.
void wait_for_device(lock& hold, int device);
void break_now(int device, cudaError_t code);

/// An allocation as a kernel sees and touches it.
struct reachable {
  std::uintptr_t begin = 0;
  std::size_t bytes = 0;
  char* alias = nullptr;  // null: not memory of that device, or freed
};
[[nodiscard]] reachable find_reachable(std::uintptr_t at, int device);

/// A kernel of the double: runs one thread of one block.
using emulated_kernel = void (*)(const void* argument);
struct emulated_shape {
  unsigned blocks;
  unsigned threads;
};
/// Of the text that the library gives to NVRTC, compiled for the host, in fake_kernels.cpp.
[[nodiscard]] emulated_kernel find_kernel(const char* name);
[[nodiscard]] std::size_t size_of_argument();
[[nodiscard]] const char* text_of_kernels();
/// On a stream's thread, unlocked. What it answers breaks the device.
[[nodiscard]] cudaError_t run_kernel(emulated_kernel kernel, const emulated_shape& shape,
                                     const void* argument);

// ---- captures, in fake_graphs.cpp --------------------------------------------------------------

/// For calls that are not allowed in a stream that is captured: they spoil the capture.
cudaError_t refuse_capture(stream_object& stream);
/// For calls that are not allowed while somebody captures in a mode that forbids them.
[[nodiscard]] cudaError_t check_safe();
void capture_record(stream_object& stream, event_object& event);
/// What a question for it is answered, which spoils a capture that goes on.
cudaError_t capture_query(event_object& event);
/// Nothing if neither of them is captured.
[[nodiscard]] std::pair<bool, cudaError_t> capture_wait(
    const std::shared_ptr<stream_object>& stream, event_object& event);

}  // namespace fake_gpu
