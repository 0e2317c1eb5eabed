// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
//
// What the double's collectives do once they run: they meet in shared memory and move data.
#include "support/fake_gpu/control.hpp"
#include "support/fake_gpu/internal.hpp"
#include "support/fake_gpu/nccl_internal.hpp"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <climits>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <thread>
#include <type_traits>
#include <utility>

namespace fake_nccl {

using namespace std::chrono_literals;
namespace internal = fake_gpu::internal;

const char* name_of(verb what) {
  switch (what) {
    case verb::all_reduce:
      return "all_reduce";
    case verb::broadcast:
      return "broadcast";
    case verb::reduce:
      return "reduce";
    case verb::all_gather:
      return "all_gather";
    case verb::reduce_scatter:
      return "reduce_scatter";
    case verb::all_to_all:
      return "all_to_all";
    case verb::gather:
      return "gather";
    case verb::scatter:
      return "scatter";
    case verb::send:
      return "send";
    default:
      return "receive";
  }
}

const char* name_of(ncclDataType_t type) {
  constexpr const char* names[] = {"i8",  "u8",  "i32", "u32",  "i64",    "u64",
                                   "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  return type >= 0 && type < ncclNumTypes ? names[type] : "unknown";
}

std::size_t size_of(ncclDataType_t type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < ncclNumTypes ? sizes[type] : 0;
}

// ---- shared memory ----------------------------------------------------------------------------

shared_segment::shared_segment(std::string name, std::size_t bytes)
    : name_(std::move(name)), bytes_(bytes) {
  for (;;) {
    file_ = shm_open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file_ < 0) return;
    struct stat status = {};
    // A sweep of another process may have come between opening and locking.
    if (flock(file_, LOCK_SH) == 0 && fstat(file_, &status) == 0 && status.st_nlink > 0) break;
    close(file_);
  }
  if (ftruncate(file_, static_cast<off_t>(bytes)) != 0) return;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory != MAP_FAILED) memory_ = memory;
}

shared_segment::~shared_segment() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
  if (file_ >= 0) close(file_);
}

void shared_segment::unlink() { shm_unlink(name_.c_str()); }

void shared_segment::unlink_if_last() {
  struct stat status = {};
  if (file_ >= 0 && flock(file_, LOCK_EX | LOCK_NB) == 0 && fstat(file_, &status) == 0 &&
      status.st_nlink > 0) {
    unlink();
  }
}

void ring(segment& shared) {
  shared.bell.fetch_add(1);
  syscall(SYS_futex, &shared.bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void listen(segment& shared, std::uint32_t heard) {
  const timespec most = {0, 1'000'000};
  syscall(SYS_futex, &shared.bell, FUTEX_WAIT, heard, &most, nullptr, 0);
}

namespace {

// ---- numbers ----------------------------------------------------------------------------------

float from_half(std::uint16_t bits) {
  const unsigned exponent = (bits >> 10) & 31U;
  const unsigned fraction = bits & 1023U;
  const float sign = (bits & 0x8000U) != 0 ? -1.0F : 1.0F;
  if (exponent == 31) {
    return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction + 1024), static_cast<int>(exponent) - 25);
}

std::uint16_t to_half(float value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7e00;
  const float size = std::fabs(value);
  if (size == 0) return sign;  // it has no exponent
  if (size >= 65520.0F) return static_cast<std::uint16_t>(sign | 0x7c00);
  int exponent = 0;
  std::frexp(size, &exponent);
  exponent = std::max(exponent, -13);  // denormal numbers have the step of the smallest normal ones
  const float steps = std::nearbyint(std::ldexp(size, 11 - exponent));  // ties to even
  // A carry into the next exponent comes out right by itself.
  const int bits = (exponent + 13) * 1024 + static_cast<int>(steps);
  return static_cast<std::uint16_t>(sign | bits);
}

struct half {
  std::uint16_t bits;
  explicit operator float() const { return from_half(bits); }
  static half made(float value) { return {to_half(value)}; }
};

struct bfloat {
  std::uint16_t bits;
  explicit operator float() const { return std::bit_cast<float>(std::uint32_t(bits) << 16); }
  static bfloat made(float value) {
    const auto all = std::bit_cast<std::uint32_t>(value);
    if (std::isnan(value)) return {0x7fc0};
    return {static_cast<std::uint16_t>((all + 0x7fffU + ((all >> 16) & 1U)) >> 16)};
  }
};

/// The 8-bit floating-point types, of which e4m3 has no infinity.
template <int Exponent, int Fraction, bool HasInfinity>
struct quarter {
  std::uint8_t bits;
  static constexpr int bias = (1 << (Exponent - 1)) - 1;
  explicit operator float() const {
    const int exponent = (bits >> Fraction) & ((1 << Exponent) - 1);
    const int fraction = bits & ((1 << Fraction) - 1);
    const float sign = (bits & 0x80) != 0 ? -1.0F : 1.0F;
    if (HasInfinity && exponent == (1 << Exponent) - 1) {
      return fraction == 0 ? sign * std::numeric_limits<float>::infinity()
                           : std::numeric_limits<float>::quiet_NaN();
    }
    if (!HasInfinity && (bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
    if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), 1 - bias - Fraction);
    return sign *
           std::ldexp(static_cast<float>(fraction + (1 << Fraction)), exponent - bias - Fraction);
  }
  static quarter made(float value) {
    if (std::isnan(value)) return {0x7f};
    const float size = std::fabs(value);
    quarter best{0};
    // Few enough to try: the largest that is not above, then whichever is nearer (ties to even).
    for (int candidate = 0; candidate < 128; ++candidate) {
      const quarter one{static_cast<std::uint8_t>(candidate)};
      const auto is = static_cast<float>(one);
      if (!std::isfinite(is)) continue;
      const float before = std::fabs(static_cast<float>(best) - size);
      const float now = std::fabs(is - size);
      if (now < before || (now == before && candidate % 2 == 0)) best = one;
    }
    if (std::signbit(value)) best.bits |= 0x80;
    return best;
  }
};

template <class T>
using calculated = std::conditional_t<std::is_arithmetic_v<T>, T, float>;

template <class T>
T made(calculated<T> value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return value;
  } else {
    return T::made(value);
  }
}

/// Calls `function` with a value of the C++ type.
template <class Function>
void with_type(ncclDataType_t type, Function function) {
  switch (type) {
    case ncclInt8:
      return function(std::int8_t());
    case ncclUint8:
      return function(std::uint8_t());
    case ncclInt32:
      return function(std::int32_t());
    case ncclUint32:
      return function(std::uint32_t());
    case ncclInt64:
      return function(std::int64_t());
    case ncclUint64:
      return function(std::uint64_t());
    case ncclFloat16:
      return function(half());
    case ncclFloat32:
      return function(float());
    case ncclFloat64:
      return function(double());
    case ncclBfloat16:
      return function(bfloat());
    case ncclFloat8e4m3:
      return function(quarter<4, 3, false>());
    default:
      return function(quarter<5, 2, true>());
  }
}

template <class C>
C plus(C left, C right) {
  if constexpr (std::is_integral_v<C>) {
    using wide = std::make_unsigned_t<C>;  // wraps
    return static_cast<C>(static_cast<wide>(static_cast<wide>(left) + static_cast<wide>(right)));
  } else {
    return left + right;
  }
}

template <class C>
C times(C left, C right) {
  if constexpr (std::is_integral_v<C>) {
    const auto product = static_cast<std::uint64_t>(left) * static_cast<std::uint64_t>(right);
    return static_cast<C>(product);
  } else {
    return left * right;
  }
}

/// `out[i]` from what the ranks have put into `parts`, in the order of ranks.
void fold(char* out, const std::vector<const char*>& parts, std::size_t count, ncclDataType_t type,
          ncclRedOp_t op) {
  with_type(type, [&]<class T>(T) {
    using C = calculated<T>;
    const auto get = [&](std::size_t part, std::size_t i) {
      T value;
      std::memcpy(&value, parts[part] + i * sizeof(T), sizeof(T));
      return static_cast<C>(value);
    };
    for (std::size_t i = 0; i < count; ++i) {
      C sum = get(0, i);
      for (std::size_t part = 1; part < parts.size(); ++part) {
        const C next = get(part, i);
        switch (op) {
          case ncclProd:
            sum = times(sum, next);
            break;
          case ncclMax:
            sum = std::max(sum, next);
            break;
          case ncclMin:
            sum = std::min(sum, next);
            break;
          default:
            sum = plus(sum, next);
            // NCCL adds in the type of the elements, step by step.
            if constexpr (!std::is_arithmetic_v<T>) {
              if (op != ncclAvg) sum = static_cast<C>(made<T>(sum));
            }
        }
      }
      if (op == ncclAvg) sum = static_cast<C>(sum / static_cast<C>(parts.size()));
      const T result = made<T>(sum);
      std::memcpy(out + i * sizeof(T), &result, sizeof(T));
    }
  });
}

void multiply(char* values, std::size_t count, ncclDataType_t type, const char* scalar) {
  with_type(type, [&]<class T>(T) {
    using C = calculated<T>;
    T factor;
    std::memcpy(&factor, scalar, sizeof(T));
    for (std::size_t i = 0; i < count; ++i) {
      T value;
      std::memcpy(&value, values + i * sizeof(T), sizeof(T));
      value = made<T>(times(static_cast<C>(value), static_cast<C>(factor)));
      std::memcpy(values + i * sizeof(T), &value, sizeof(T));
    }
  });
}

char* touch(const void* address, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  return static_cast<char*>(fake_gpu::access(const_cast<void*>(address), bytes));
}

/// The factor of a multiplication, read when the kernel runs if it is on the device.
std::array<char, 8> factor_of(const operation& what) {
  std::array<char, 8> scalar = what.factor.scalar;
  if (what.factor.on_device != nullptr) {
    const std::size_t bytes = size_of(what.type);
    if (const char* from = touch(what.factor.on_device, bytes)) {
      std::memcpy(scalar.data(), from, bytes);
    }
  }
  return scalar;
}

// ---- one launch -------------------------------------------------------------------------------

struct runner {
  kernel& what;
  communicator& of = *what.of;
  segment& shared = *of.shared;
  rank_slot& mine = of.mine();

  bool stopped() const { return of.aborted || internal::must_end(); }

  /// Waits for what other ranks do; `missing` tells which. False: the kernel ends without it. An
  /// error of the communicator does not end the kernel: only an abort does, as on hardware.
  template <class Predicate, class Missing>
  bool wait(Predicate until, Missing missing) {
    const auto begin = std::chrono::steady_clock::now();
    bool told = false;
    bool reached = false;
    for (;;) {
      const std::uint32_t heard = shared.bell.load();
      if (stopped()) break;
      if (!of.failed()) {
        reached = until();
        if (reached) break;
        if (std::chrono::steady_clock::now() - begin > 5ms) {
          if (const finding found = stuck(of); found.code != ncclSuccess) {
            break_communicator(of, found.code, found.text);
            mine.mismatched.store(1);
            ring(shared);
          }
          wait_for_ranks(of, missing());
          told = true;
        }
      }
      listen(shared, heard);
    }
    if (told) wait_for_nobody(of);
    return reached;
  }

  bool wait_forever() {
    return wait([] { return false; }, [] { return 0U; });
  }

  /// Waits until all ranks have come to this.
  bool meet() {
    ++of.step;
    mine.step.store(of.step);
    ring(shared);
    const auto missing = [&] {
      std::uint32_t made = 0;
      for (int i = 0; i < of.ranks; ++i) {
        if (shared.ranks[i].step.load() < of.step) made |= 1U << i;
      }
      return made;
    };
    return wait([&] { return missing() == 0; }, missing);
  }

  std::string text(const described& call) const {
    std::string made = name_of(static_cast<verb>(call.what));
    made +=
        " of " + std::to_string(call.count) + " " + name_of(static_cast<ncclDataType_t>(call.type));
    constexpr const char* ops[] = {"sum", "prod", "max", "min", "avg", "pre-multiplied sum"};
    if (call.op != UINT32_MAX) made += std::string(", ") + ops[std::min(call.op, 5U)];
    if (call.root >= 0) made += ", root " + std::to_string(call.root);
    if (call.place != 0) made += ", at " + std::to_string(call.place - 1) + " of registered memory";
    return made;
  }

  static described describe(const operation& one) {
    const bool reduces = one.what == verb::all_reduce || one.what == verb::reduce ||
                         one.what == verb::reduce_scatter;
    const bool rooted = one.what == verb::broadcast || one.what == verb::reduce ||
                        one.what == verb::gather || one.what == verb::scatter;
    described made = {};
    made.what = static_cast<std::uint32_t>(one.what);
    made.type = static_cast<std::uint32_t>(one.type);
    made.op = reduces ? std::min(static_cast<std::uint32_t>(one.op), 5U) : UINT32_MAX;
    made.root = rooted ? one.root : -1;
    made.count = one.count;
    made.place = one.place;
    return made;
  }

  bool agree(const operation& one) {
    const auto which = of.collectives++ % 2;
    mine.calls[which] = describe(one);
    mine.wants_collective.store(1);
    if (!meet()) return false;
    mine.wants_collective.store(0);
    for (int i = 0; i < of.ranks; ++i) {
      const described& theirs = shared.ranks[i].calls[which];
      const described& first = shared.ranks[0].calls[which];
      if (std::memcmp(&theirs, &first, sizeof first) != 0) {
        break_communicator(of, ncclInvalidUsage,
                           "mismatch: rank " + std::to_string(i) + " called " + text(theirs) +
                               ", rank 0 " + text(first));
        return wait_forever();
      }
    }
    return true;
  }

  /// One round: `fill` writes this rank's slot, `use` reads the slots of all.
  template <class Fill, class Use>
  bool round(Fill fill, Use use) {
    fill(shared.staging[of.rank]);
    if (!meet()) return false;
    use();
    return meet();
  }

  void reduce_into(char* to, const operation& one, std::size_t count) {
    std::vector<const char*> parts;
    for (int i = 0; i < of.ranks; ++i) parts.push_back(shared.staging[i]);
    fold(to, parts, count, one.type, one.op);
  }

  bool collective(const operation& one) {
    if (!agree(one)) return false;
    const std::size_t size = size_of(one.type);
    const std::size_t bytes = one.count * size;
    const auto ranks = static_cast<std::size_t>(of.ranks);
    const auto me = static_cast<std::size_t>(of.rank);
    const bool root = of.rank == one.root;
    const bool many_in = one.what == verb::reduce_scatter || one.what == verb::all_to_all ||
                         (one.what == verb::scatter && root);
    const bool many_out = one.what == verb::all_gather || one.what == verb::all_to_all ||
                          (one.what == verb::gather && root);
    const bool reads = !((one.what == verb::broadcast || one.what == verb::scatter) && !root);
    const bool writes = !((one.what == verb::reduce || one.what == verb::gather) && !root);
    const char* from = reads ? touch(one.from, many_in ? ranks * bytes : bytes) : nullptr;
    char* to = writes ? touch(one.to, many_out ? ranks * bytes : bytes) : nullptr;
    if ((reads && from == nullptr) || (writes && to == nullptr)) return false;  // broken
    const auto factor = factor_of(one);
    const bool per_target = one.what == verb::reduce_scatter || one.what == verb::all_to_all ||
                            one.what == verb::scatter;

    for (std::size_t target = 0; target < (per_target ? ranks : 1); ++target) {
      const char* block = per_target && from != nullptr ? from + target * bytes : from;
      for (std::size_t at = 0; at < bytes;) {
        const std::size_t now = std::min(slot_bytes, bytes - at);
        const auto fill = [&](char* slot) {
          if (block == nullptr) return;
          std::memcpy(slot, block + at, now);
          if (one.factor.used) multiply(slot, now / size, one.type, factor.data());
        };
        const auto use = [&] {
          switch (one.what) {
            case verb::all_reduce:
              return reduce_into(to + at, one, now / size);
            case verb::reduce:
              if (root) reduce_into(to + at, one, now / size);
              return;
            case verb::reduce_scatter:
              if (target == me) reduce_into(to + at, one, now / size);
              return;
            case verb::broadcast:
              if (!root || to != from) std::memcpy(to + at, shared.staging[one.root] + 0, now);
              return;
            case verb::scatter:
              if (target == me) std::memcpy(to + at, shared.staging[one.root], now);
              return;
            default:
              if (one.what == verb::gather && !root) return;
              if (one.what == verb::all_to_all && target != me) return;
              for (std::size_t i = 0; i < ranks; ++i) {
                std::memcpy(to + i * bytes + at, shared.staging[i], now);
              }
          }
        };
        if (!round(fill, use)) return false;
        at += now;
      }
    }
    return true;
  }

  // Messages: those of one pair and direction in order, all pairs together.
  struct message {
    const operation* one = nullptr;
    channel* through = nullptr;
    char* data = nullptr;
    std::size_t bytes = 0;
    std::size_t done = 0;
    bool begun = false;
    bool ended = false;
  };

  bool step_send(message& one) {
    channel& to = *one.through;
    if (to.mismatch.load() != 0) return mismatch(one);
    if (to.written.load() != to.read.load()) return false;
    if (one.begun && one.done == one.bytes) {  // all read
      one.ended = true;
      return true;
    }
    const std::size_t now = std::min(channel_bytes, one.bytes - one.done);
    if (!one.begun) to.message = describe(*one.one);
    if (now > 0) std::memcpy(to.data, one.data + one.done, now);
    one.begun = true;
    one.done += now;
    to.written.fetch_add(1);
    return true;
  }

  bool step_receive(message& one) {
    channel& from = *one.through;
    if (from.written.load() == from.read.load()) return false;
    if (!one.begun) {
      const described& sent = from.message;
      if (sent.count != one.one->count || sent.type != static_cast<std::uint32_t>(one.one->type)) {
        from.mismatch.store(1);
        ring(shared);
        return mismatch(one);
      }
    }
    const std::size_t now = std::min(channel_bytes, one.bytes - one.done);
    if (now > 0) std::memcpy(one.data + one.done, from.data, now);
    one.begun = true;
    one.done += now;
    one.ended = one.done == one.bytes;
    if (one.ended) from.done.fetch_add(1);  // before the sender can go on
    from.read.fetch_add(1);
    return true;
  }

  bool mismatch(const message& one) {
    break_communicator(of, ncclInvalidUsage,
                       "mismatch: rank " + std::to_string(of.rank) + " called " +
                           text(describe(*one.one)) + " with rank " +
                           std::to_string(one.one->root) +
                           ", which sent or expects another count or type");
    return false;
  }

  bool messages() {
    std::vector<message> all;
    for (const operation& one : what.messages) {
      message made;
      made.one = &one;
      made.bytes = one.count * size_of(one.type);
      const bool sends = one.what == verb::send;
      made.through =
          sends ? &shared.channels[of.rank][one.root] : &shared.channels[one.root][of.rank];
      made.data = touch(sends ? one.from : one.to, made.bytes);
      if (made.bytes > 0 && made.data == nullptr) return false;
      all.push_back(made);
    }
    for (const message& one : all) {
      (one.one->what == verb::send ? one.through->sends : one.through->receives).fetch_add(1);
    }
    mine.in_messages.store(1);
    ring(shared);
    const auto missing = [&] {
      std::uint32_t made = 0;
      for (const message& one : all) {
        if (!one.ended) made |= 1U << one.one->root;
      }
      return made;
    };
    const auto some = [&] {
      bool moved = false;
      std::vector<std::pair<channel*, bool>> busy;
      for (message& one : all) {
        const bool sends = one.one->what == verb::send;
        const std::pair<channel*, bool> lane(one.through, sends);
        if (one.ended || std::find(busy.begin(), busy.end(), lane) != busy.end()) continue;
        busy.push_back(lane);
        moved |= sends ? step_send(one) : step_receive(one);
      }
      return moved;
    };
    while (missing() != 0) {
      if (!wait(some, missing)) return false;
      ring(shared);
    }
    mine.in_messages.store(0);
    return true;
  }

  /// What an aborted kernel leaves.
  void poison() {
    const auto ruin = [&](const operation& one) {
      if (one.what == verb::send || one.to == nullptr) return;
      const bool root = of.rank == one.root;
      if ((one.what == verb::reduce || one.what == verb::gather) && !root) return;
      const bool many =
          one.what == verb::all_gather || one.what == verb::all_to_all || one.what == verb::gather;
      const std::size_t bytes =
          one.count * size_of(one.type) * (many ? static_cast<std::size_t>(of.ranks) : 1);
      if (char* to = touch(one.to, bytes)) std::memset(to, 0xdb, bytes);
    };
    for (const operation& one : what.collectives) ruin(one);
    for (const operation& one : what.messages) ruin(one);
  }

  bool work() {
    if (what.delay != 0) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(what.delay);
      while (std::chrono::steady_clock::now() < end && !stopped())
        std::this_thread::sleep_for(100us);
    }
    if (what.hang) return wait_forever();
    for (const operation& one : what.collectives) {
      if (!collective(one)) return false;
    }
    return what.messages.empty() || messages();
  }
};

}  // namespace

kernel::~kernel() {
  if (number == 0) return;  // never launched
  of->kernels_ended.fetch_add(1);
  ring(*of->shared);
}

void run(kernel& what) {
  communicator& of = *what.of;
  // Those of one communicator run in the order of their launch, on whichever streams.
  while (of.kernels_ended.load() + 1 < what.number && !internal::must_end()) {
    const std::uint32_t heard = of.shared->bell.load();
    if (of.kernels_ended.load() + 1 < what.number) listen(*of.shared, heard);
  }
  if (!internal::take_multiprocessors()) return;
  runner now{what};
  const bool done = !now.stopped() && now.work();
  if (!done && of.aborted && !internal::must_end()) now.poison();
  of.mine().wants_collective.store(0);
  of.mine().in_messages.store(0);
  internal::give_multiprocessors();
}

void run_alone(const operation& what) {
  const std::size_t bytes = what.count * size_of(what.type);
  char* to = touch(what.to, bytes);
  const char* from = touch(what.from, bytes);
  if (to == nullptr || from == nullptr) return;
  if (!multiplies_alone(what)) {
    if (to != from) std::memmove(to, from, bytes);
    return;
  }
  // As NCCL 2.28.3 does: a number of blocks that does not divide the elements leaves some out.
  const std::size_t width = size_of(what.type);
  const std::size_t blocks = std::min<std::size_t>(32, (bytes + (16U << 10U) - 1) / (16U << 10U));
  const std::size_t pack = 16 / width;
  const std::size_t of_block = (what.count / blocks + pack - 1) / pack * pack;
  const std::size_t done = std::min(what.count, of_block * blocks);
  if (to != from) std::memmove(to, from, done * width);
  if (what.factor.used) multiply(to, done, what.type, factor_of(what).data());
}

bool multiplies_alone(const operation& what) {
  const bool real = what.type != ncclInt8 && what.type != ncclUint8 && what.type != ncclInt32 &&
                    what.type != ncclUint32 && what.type != ncclInt64 && what.type != ncclUint64;
  return what.factor.used || (what.op == ncclAvg && real);
}

}  // namespace fake_nccl
