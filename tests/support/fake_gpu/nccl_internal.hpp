// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file What the two files of NCCL's double share: the memory that the ranks of a communicator
/// share, the communicator as one rank sees it, and its kernels. Not for tests.

#include <nccl.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fake_nccl {

constexpr int most_ranks = 16;
constexpr std::size_t slot_bytes = std::size_t(64) << 10;     // of a collective, per rank
constexpr std::size_t channel_bytes = std::size_t(16) << 10;  // of a message, per pair

enum class verb : std::uint32_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  gather,
  scatter,
  send,
  receive
};
[[nodiscard]] const char* name_of(verb what);
[[nodiscard]] const char* name_of(ncclDataType_t type);
[[nodiscard]] std::size_t size_of(ncclDataType_t type);  // 0: no type

// ---- shared between processes: atomics and plain old data, valid when all is zero -------------

/// What must be equal on all ranks.
struct described {
  std::uint32_t what;
  std::uint32_t type;
  std::uint32_t op;
  std::int32_t root;
  std::uint64_t count;
  std::uint64_t place;  // in registered memory, see `operation`
};

struct rank_slot {
  std::atomic<std::uint32_t> attached;  // 1: claimed, 2: what follows is written
  std::int32_t pid, device, version, ranks;
  std::uint64_t host;
  std::int64_t bus;
  char description[48];

  std::atomic<std::uint32_t> connected;  // has called a collective
  std::atomic<std::uint32_t> met;        // bits: peers it has called a send or a receive for
  std::atomic<std::uint32_t> finalized;
  std::atomic<std::uint64_t> splits;
  struct {
    std::int32_t color, key;
  } split[4];

  // What the rank waits for. Counters only grow, so that a look from elsewhere is never misled by
  // somebody who was about to change his mind.
  std::atomic<std::uint64_t> step;  // barriers that its kernels have come to
  described calls[2];
  std::atomic<std::uint32_t> wants_collective;      // in a kernel
  std::atomic<std::uint32_t> in_messages;           // in a kernel
  std::atomic<std::uint32_t> launching_collective;  // not launched: somebody has not called it yet
  std::atomic<std::uint32_t> launching_messages;    // bits: peers
  std::atomic<std::uint32_t> mismatched;
};

struct channel {
  std::atomic<std::uint64_t> sends, receives, done;  // messages
  std::atomic<std::uint64_t> written, read;          // chunks
  std::atomic<std::uint32_t> mismatch;
  described message;
  char data[channel_bytes];
};

struct segment {
  std::atomic<std::uint32_t> bell;
  rank_slot ranks[most_ranks];
  alignas(64) char staging[most_ranks][slot_bytes];
  channel channels[most_ranks][most_ranks];  // [from][to]
};

/// The mapping of a segment that any process can find by its name until it is unlinked.
class shared_segment {
 public:
  shared_segment(std::string name, std::size_t bytes);
  ~shared_segment();
  shared_segment(const shared_segment&) = delete;
  shared_segment& operator=(const shared_segment&) = delete;

  [[nodiscard]] void* get() const { return memory_; }  // null: there is none
  void unlink();
  /// Removes the name if no other process uses the segment.
  void unlink_if_last();

 private:
  std::string name_;
  std::size_t bytes_;
  void* memory_ = nullptr;
  int file_ = -1;  // stays open for its lock, which tells sweeps that somebody is there
};

/// Wakes whoever waits for a change of the segment, in any process.
void ring(segment& shared);
/// Waits until the bell is no longer `heard`, or a little while.
void listen(segment& shared, std::uint32_t heard);

// ---- one process ------------------------------------------------------------------------------

/// A multiplication before a sum.
struct premultiplied {
  bool used = false;
  ncclDataType_t type = ncclFloat32;
  const void* on_device = nullptr;  // null: the value is in `scalar`
  std::array<char, 8> scalar{};
};

struct operation {
  verb what = verb::all_reduce;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t op = ncclSum;
  int root = 0;  // or peer
  premultiplied factor;
  /// 0: not in registered memory; else the offset there and one, or only one where ranks may have
  /// different offsets.
  std::uint64_t place = 0;
};

struct communicator {
  std::string key;   // the same on all ranks
  std::string name;  // for people
  int rank = 0;
  int ranks = 1;
  int device = 0;
  std::uint32_t generation = 0;  // of the device
  bool blocking = true;
  std::unique_ptr<shared_segment> mapping;
  segment* shared = nullptr;

  std::atomic<int> state{ncclSuccess};
  std::atomic<bool> aborted{false};
  std::atomic<bool> hang_next{false};
  std::atomic<unsigned> delay_next{0};
  std::atomic<std::uint64_t> kernels_launched{0};
  std::atomic<std::uint64_t> kernels_ended{0};
  std::atomic<std::uint64_t> captured{0};  // calls in graphs that are alive

  // Under the lock of the file that holds the calls.
  bool linked = true;
  bool ready = false;      // its making is done
  bool finalized = false;  // has been called
  bool gone = false;
  std::uint64_t splits = 0;
  std::vector<premultiplied> factors;
  int registrations = 0;

  // Of the kernels, which run one after another.
  std::uint64_t step = 0;
  std::uint64_t collectives = 0;

  [[nodiscard]] rank_slot& mine() const { return shared->ranks[rank]; }
  [[nodiscard]] bool failed() const {
    const int now = state.load();
    return now != ncclSuccess && now != ncclInProgress;
  }
};

/// The communicator has an asynchronous error, if it has none yet, and the text is kept.
void break_communicator(communicator& of, ncclResult_t code, const std::string& text);

/// One launch: the collectives one after another, then all messages together.
struct kernel {
  std::shared_ptr<communicator> of;
  std::vector<operation> collectives;
  std::vector<operation> messages;
  std::uint64_t number = 0;
  bool hang = false;
  unsigned delay = 0;

  explicit kernel(std::shared_ptr<communicator> which) : of(std::move(which)) {}
  ~kernel();
  kernel(const kernel&) = delete;
  kernel& operator=(const kernel&) = delete;
};

/// Why the rank waits in vain for others of its communicator, or an empty text.
struct finding {
  ncclResult_t code = ncclSuccess;
  std::string text;
};
[[nodiscard]] finding stuck(const communicator& of);

/// Tells everybody on this node that the communicator has this device and waits for those ranks
/// (bits), and looks for a cycle of such waits. Called again and again while it waits.
void wait_for_ranks(const communicator& of, std::uint32_t ranks);
/// The device waits no longer.
void wait_for_nobody(const communicator& of);
/// What was found.
[[nodiscard]] std::vector<std::string> cycles_found();
void forget_waits();

/// On the thread of a stream.
void run(kernel& what);

/// What NCCL does with a communicator of size one: out of place a copy, or a multiplication.
void run_alone(const operation& what);
/// Whether one rank alone has a kernel for it, and no copy.
[[nodiscard]] bool multiplies_alone(const operation& what);

}  // namespace fake_nccl
