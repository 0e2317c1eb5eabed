// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file A backend for devices that has none: its device memory is memory of the host that cannot
/// be touched but by itself, and MPI moves the data. It does one operation after the other, in the
/// order in which they are started, and notes what the coordinator asks of it.

#include <cohort/comm/device_backend.hpp>
#include <cohort/coordinator.hpp>
#include <cohort/mpi/lock.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "support/catch.hpp"

namespace cohort_test {

/// Pages that nobody can read or write but inside `open_memory`.
class locked_memory {
 public:
  explicit locked_memory(std::size_t bytes) : bytes_(std::max<std::size_t>(bytes, 1)) {
    data_ = ::mmap(nullptr, bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) throw std::bad_alloc();
    ++alive;
  }
  locked_memory(const locked_memory&) = delete;
  locked_memory& operator=(const locked_memory&) = delete;
  ~locked_memory() {
    ::munmap(data_, bytes_);
    --alive;
  }
  [[nodiscard]] void* data() const noexcept { return data_; }

  static inline int alive = 0;

 private:
  void* data_;
  std::size_t bytes_;
};

/// While it lives `bytes` at `data` can be used.
class open_memory {
 public:
  open_memory(const void* data, std::size_t bytes) {
    constexpr std::size_t page = 4096;
    const auto begin = reinterpret_cast<std::uintptr_t>(data) / page * page;
    const auto end = (reinterpret_cast<std::uintptr_t>(data) + bytes + page - 1) / page * page;
    at_ = reinterpret_cast<void*>(begin);
    bytes_ = data == nullptr || bytes == 0 ? 0 : end - begin;
    protect(PROT_READ | PROT_WRITE);
  }
  open_memory(const open_memory&) = delete;
  open_memory& operator=(const open_memory&) = delete;
  ~open_memory() { protect(PROT_NONE); }

 private:
  void protect(int how) const {
    if (bytes_ != 0 && ::mprotect(at_, bytes_, how) != 0) std::abort();
  }
  void* at_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A handle, as streams are.
class fake_stream {
 public:
  explicit fake_stream(int device = 0) : device_(device), own_(std::make_shared<int>(0)) {}
  [[nodiscard]] const void* get() const noexcept { return own_.get(); }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] long handles() const noexcept { return own_.use_count(); }

 private:
  int device_;
  std::shared_ptr<int> own_;
};

/// Owns elements in such memory.
template <class T>
class fake_vector {
 public:
  using value_type = T;
  fake_vector() noexcept {}
  explicit fake_vector(std::size_t size, int device = 0)
      : size_(size),
        device_(device),
        memory_(std::make_shared<const locked_memory>(size * sizeof(T))) {}
  explicit fake_vector(const std::vector<T>& values, int device = 0)
      : fake_vector(values.size(), device) {
    const open_memory open(data(), bytes());
    std::copy(values.begin(), values.end(), data());
  }
  fake_vector(fake_vector&& other) noexcept
      : size_(std::exchange(other.size_, 0)),
        device_(other.device_),
        memory_(std::move(other.memory_)) {}
  fake_vector& operator=(fake_vector&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    device_ = other.device_;
    memory_ = std::move(other.memory_);
    return *this;
  }
  [[nodiscard]] T* data() noexcept { return memory_ ? static_cast<T*>(memory_->data()) : nullptr; }
  [[nodiscard]] const T* data() const noexcept {
    return memory_ ? static_cast<const T*>(memory_->data()) : nullptr;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return size_ * sizeof(T); }
  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] std::shared_ptr<const void> lease() const noexcept { return memory_; }
  [[nodiscard]] std::vector<T> values() const {
    const open_memory open(data(), bytes());
    return size_ == 0 ? std::vector<T>() : std::vector<T>(data(), data() + size_);
  }

 private:
  std::size_t size_ = 0;
  int device_ = -1;
  std::shared_ptr<const locked_memory> memory_;
};

}  // namespace cohort_test

template <class T>
struct cohort::memory_traits<cohort_test::fake_vector<T>> {
  using result = cohort_test::fake_vector<T>;
  static constexpr memory_space space = memory_space::device;
  static memory_location locate(const cohort_test::fake_vector<T>& of) noexcept {
    return {space, of.device(), nullptr};
  }
  static std::shared_ptr<const void> lease(const cohort_test::fake_vector<T>& of) noexcept {
    return of.lease();
  }
  static result make(std::size_t count, const cohort_test::fake_vector<T>& like) {
    return result(count, like.device());
  }
};

namespace cohort_test {

/// What the coordinator has asked, and what is to be done about it.
struct device_script {
  // Notes.
  std::vector<std::string> started;  ///< "all_reduce 5"; log counts from the first one on
  std::vector<std::uint64_t> sequences;
  std::vector<std::size_t> tensors;  ///< of each call
  std::vector<cohort::until> ends;
  std::vector<bool> sized_at_start;
  std::vector<bool> all_bring;
  int marks = 0;
  int marks_alive = 0;
  int on_streams = 0;  ///< marks with a stream
  int added = 0;       ///< results
  int kept = 0;
  int fails = 0;
  int closes = 0;
  std::vector<std::uint32_t> started_sets;  ///< of each call
  std::vector<std::uint32_t> closed_sets;
  int forgotten = 0;
  int deadlines = 0;
  std::error_code told;  ///< why it was to fail
  // Orders.
  std::string called = "fake";
  std::vector<std::pair<std::string, std::uint64_t>> facts{{"version", 7}};
  std::exception_ptr open_fails;
  bool holds_open = false;    ///< `let_open` ends that
  bool holds_data = false;    ///< nothing begins until `let_run`
  bool ignores_fail = false;  ///< what is in flight does not end
  std::string refusal;
  int fail_at = -1;  ///< the n-th call ends with an error on this rank, before it has data
  bool fails_on_deadline = false;
  std::function<void()> let_open;
  std::function<void()> let_run;
};

class fake_device final : public cohort::comm::device_backend,
                          public std::enable_shared_from_this<fake_device> {
 public:
  using call_type = cohort::comm::device_call;
  explicit fake_device(std::shared_ptr<device_script> script) : script_(std::move(script)) {}

  [[nodiscard]] std::string_view name() const noexcept override { return script_->called; }
  void facts(std::vector<std::pair<std::string, std::uint64_t>>& all) const override {
    all.insert(all.end(), script_->facts.begin(), script_->facts.end());
  }
  void open(std::uint32_t set, const cohort::communicator& over,
            std::function<void(std::exception_ptr)> done) override {
    if (set == 0) over_ = over;
    sets_[set] = {over, std::move(done), false};
    script_->let_open = [weak = weak_from_this(), set] {
      if (const auto self = weak.lock()) self->end_opening(set, self->script_->open_fails);
    };
    script_->let_run = [weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->run();
    };
    if (!script_->holds_open) script_->let_open();
  }
  [[nodiscard]] std::string refuses(const call_type&) const override { return script_->refusal; }
  [[nodiscard]] std::shared_ptr<cohort::comm::device_mark> mark(
      std::span<const cohort::comm::device_buffer> buffers, const cohort::stream_ref& on) override {
    for (const cohort::comm::device_buffer& each : buffers) {
      if (each.where.device > 0 || on.device > 0) {
        throw cohort::error(cohort::errc::wrong_device, std::string(each.field) + " is elsewhere");
      }
    }
    ++script_->marks;
    if (on.device >= 0) ++script_->on_streams;
    auto made = std::make_shared<noted>(script_);
    made->buffers.assign(buffers.begin(), buffers.end());
    made->on = on;
    return made;
  }
  void add_result(cohort::comm::device_mark& to, const cohort::comm::device_buffer& made) override {
    ++script_->added;
    static_cast<noted&>(to).buffers.push_back(made);
  }
  void start(call_type& what, cohort::comm::backend_completion done) override {
    script_->started.push_back(std::string(what.verb) + " " + std::to_string(what.tensors.size()));
    script_->sequences.push_back(what.sequence);
    script_->started_sets.push_back(what.set);
    script_->tensors.push_back(what.tensors.size());
    script_->ends.push_back(what.ends);
    script_->sized_at_start.push_back(what.sized);
    script_->all_bring.push_back(what.tensors.front().all_bring);
    waiting_.push_back(std::make_unique<running>(what, done));
    run_soon();
  }
  void sizes_known(call_type& what) override {
    CHECK_FALSE(what.sized);
    what.sized = true;
    run_soon();
  }
  [[nodiscard]] cohort::comm::device_buffer keep(
      const cohort::comm::device_buffer& of,
      std::shared_ptr<cohort::comm::device_mark>& mark) override {
    ++script_->kept;
    REQUIRE(mark != nullptr);
    auto memory = std::make_shared<const locked_memory>(of.bytes);
    {
      const open_memory from(of.data, of.bytes);
      const open_memory to(memory->data(), of.bytes);
      std::memcpy(memory->data(), of.data, of.bytes);
    }
    auto made = std::make_shared<noted>(script_);
    cohort::comm::device_buffer copy = of;
    copy.data = memory->data();
    copy.lease = memory;
    made->buffers.push_back(copy);
    mark = made;
    return copy;
  }
  bool deadline_passed(call_type&) override {
    ++script_->deadlines;
    if (script_->fails_on_deadline) end_all(cohort::errc::deadline_exceeded);
    return true;
  }
  void fail(std::error_code why, const std::string&) override {
    ++script_->fails;
    script_->told = why;
    if (!script_->ignores_fail) end_all(why);
  }
  bool forget(const cohort::comm::request_operation& op) override {
    ++script_->forgotten;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (!waiting_[i]->done.is_of(op)) continue;
      drop(i);
      return true;
    }
    return false;
  }
  void close(std::uint32_t set) override {
    if (set == 0) {
      ++script_->closes;
      over_ = cohort::communicator();
      sets_.clear();
    } else {
      script_->closed_sets.push_back(set);
      CHECK(sets_.erase(set) == 1);
    }
  }

 private:
  struct noted final : cohort::comm::device_mark {
    explicit noted(std::shared_ptr<device_script> where) : script(std::move(where)) {
      ++script->marks_alive;
    }
    ~noted() override { --script->marks_alive; }
    std::shared_ptr<device_script> script;
    std::vector<cohort::comm::device_buffer> buffers;
    cohort::stream_ref on;
  };
  /// What goes from every rank to every other: how much for whom, then the data. Kept for ever if
  /// it is left while MPI works on it.
  struct exchange {
    std::vector<std::uint64_t> lengths;  // of each rank, and the log count
    std::vector<std::byte> out;
    std::vector<std::byte> in;
    std::vector<int> counts;
    std::vector<int> begins;
    MPI_Request request = MPI_REQUEST_NULL;
    bool has_lengths = false;
  };
  struct running {
    running(call_type& what_, cohort::comm::backend_completion done_)
        : what(&what_), done(done_), marks(what_.marks) {}
    call_type* what;
    cohort::comm::backend_completion done;
    std::vector<std::shared_ptr<cohort::comm::device_mark>> marks;
    std::shared_ptr<exchange> data;
  };

  void end_opening(std::uint32_t set, std::exception_ptr why) {
    const auto found = sets_.find(set);
    if (found == sets_.end() || !found->second.opened) return;
    found->second.is_open = !why;
    auto done = std::exchange(found->second.opened, nullptr);
    asio::post(over_.get_executor(), [done = std::move(done), why] { done(why); });
    run_soon();
  }
  void run_soon() {
    if (!over_) return;
    asio::post(over_.get_executor(), [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self && !self->script_->holds_data) self->run();
    });
  }
  void end_all(std::error_code why) {
    while (!waiting_.empty()) {
      const auto done = waiting_.front()->done;
      drop(0);
      done(why);
    }
    for (auto& [set, one] : sets_) {
      if (one.opened) {
        end_opening(set, std::make_exception_ptr(cohort::error(why, "told to fail")));
      }
    }
  }
  void drop(std::size_t index) {
    static auto& left = *new std::vector<std::shared_ptr<exchange>>;
    if (waiting_[index]->data) left.push_back(waiting_[index]->data);
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // One step of what stands at the head. Nobody blocks.
  void run() {
    if (waiting_.empty() || !waiting_.front()->what->sized) return;
    running& head = *waiting_.front();
    const set_state& set = sets_.at(head.what->set);
    if (!set.is_open) return;
    over_ = set.over;  // one operation at a time
    if (!head.data) {
      if (calls_++ == script_->fail_at) {
        const auto done = head.done;
        for (auto& [number, each] : sets_) each.is_open = false;  // it does nothing more
        drop(0);
        return done(cohort::errc::stalled);
      }
      head.data = std::make_shared<exchange>();
      post_lengths(*head.what, *head.data);
    }
    const cohort::mpi::lock calls;
    int done = 0;
    MPI_Test(&head.data->request, &done, MPI_STATUS_IGNORE);
    if (done == 0) return run_soon();
    if (!head.data->has_lengths) {
      post_data(*head.what, *head.data);
      return run_soon();
    }
    finish(*head.what, *head.data);
    const auto completion = head.done;
    head.data = nullptr;
    drop(0);
    completion({});
    run_soon();
  }

  [[nodiscard]] std::size_t ranks() const { return static_cast<std::size_t>(over_.size()); }
  [[nodiscard]] std::size_t header() const { return ranks() * sizeof(std::uint64_t); }
  [[nodiscard]] static bool reduces(const call_type& call) {
    return call.reduction != cohort::comm::device_reduction::none;
  }

  void post_lengths(const call_type& call, exchange& data) {
    std::vector<std::uint64_t> sent(ranks());
    std::copy(call.sent.begin(), call.sent.end(), sent.begin());
    data.out.resize(header());
    std::memcpy(data.out.data(), sent.data(), header());
    for (const cohort::comm::device_tensor& each : call.tensors) lay(call, each, data.out);
    data.lengths.assign(2 * ranks(), 0);
    const auto me = 2 * static_cast<std::size_t>(over_.rank());
    data.lengths[me] = data.out.size();
    data.lengths[me + 1] = call.sequence;
    const cohort::mpi::lock calls;
    MPI_Iallgather(MPI_IN_PLACE, 2, MPI_UINT64_T, data.lengths.data(), 2, MPI_UINT64_T,
                   over_.native(), &data.request);
  }
  void lay(const call_type& call, const cohort::comm::device_tensor& each,
           std::vector<std::byte>& out) {
    const std::size_t bytes = each.count * each.size;
    if (each.in == nullptr && !reduces(call)) return;  // nothing to read here
    const std::size_t at = out.size();
    out.resize(at + padded(bytes));
    if (each.in == nullptr) {
      CHECK_FALSE(each.all_bring);
      return each.math->fill(out.data() + at, each.count, call.reduction);
    }
    const open_memory open(each.in, bytes);
    if (bytes != 0) std::memcpy(out.data() + at, each.in, bytes);
    if (each.prescale != 1) {
      each.math->scale(out.data() + at, out.data() + at, each.count, each.prescale);
    }
  }
  void post_data(const call_type& call, exchange& data) {
    data.has_lengths = true;
    int end = 0;
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      CHECK(data.lengths[2 * rank + 1] == call.sequence);  // all do the same
      data.counts.push_back(static_cast<int>(data.lengths[2 * rank]));
      data.begins.push_back(end);
      end += data.counts.back();
    }
    data.in.resize(static_cast<std::size_t>(end));
    MPI_Iallgatherv(data.out.data(), static_cast<int>(data.out.size()), MPI_BYTE, data.in.data(),
                    data.counts.data(), data.begins.data(), MPI_BYTE, over_.native(),
                    &data.request);
  }
  [[nodiscard]] std::byte* from(exchange& data, std::size_t rank) const {
    return data.in.data() + data.begins[rank] + header();
  }

  template <class T>
  static void combine(std::byte* into, const std::byte* other, std::size_t n,
                      cohort::comm::device_reduction how) {
    using cohort::comm::device_reduction;
    auto* a = reinterpret_cast<T*>(into);
    const auto* b = reinterpret_cast<const T*>(other);
    for (std::size_t i = 0; i < n; ++i) {
      if (how == device_reduction::min) {
        a[i] = std::min(a[i], b[i]);
      } else if (how == device_reduction::max) {
        a[i] = std::max(a[i], b[i]);
      } else if (how == device_reduction::product) {
        a[i] = a[i] * b[i];
      } else {
        a[i] = a[i] + b[i];
      }
    }
  }
  /// All ranks' elements from byte `at` on, reduced into those of rank 0.
  const std::byte* reduced(const call_type& call, const cohort::comm::device_tensor& each,
                           exchange& data, std::size_t at) const {
    std::byte* const all = from(data, 0) + at;
    for (std::size_t rank = 1; rank < ranks(); ++rank) {
      const std::byte* const other = from(data, rank) + at;
      if (each.element == cohort::element_type::float32) {
        combine<float>(all, other, each.count, call.reduction);
      } else if (each.element == cohort::element_type::float64) {
        combine<double>(all, other, each.count, call.reduction);
      } else {
        REQUIRE(each.element == cohort::element_type::int32);
        combine<std::int32_t>(all, other, each.count, call.reduction);
      }
    }
    if (call.reduction == cohort::comm::device_reduction::average) {
      each.math->divide(all, all, each.count, each.divisor);
    }
    if (each.postscale != 1) each.math->scale(all, all, each.count, each.postscale);
    return all;
  }
  static void put(void* out, std::size_t at, const std::byte* from, std::size_t bytes) {
    if (out == nullptr || bytes == 0) return;
    auto* const to = static_cast<std::byte*>(out) + at;
    const open_memory open(to, bytes);
    std::memcpy(to, from, bytes);
  }

  void finish(const call_type& call, exchange& data) {
    using cohort::comm::collective;
    const auto me = static_cast<std::size_t>(over_.rank());
    const auto root = static_cast<std::size_t>(call.root);
    std::size_t at = 0;
    for (const cohort::comm::device_tensor& each : call.tensors) {
      const std::size_t bytes = each.count * each.size;
      std::size_t end = 0;
      switch (call.kind) {
        case collective::all_reduce:
        case collective::reduce:
          put(each.out, 0, reduced(call, each, data, at), bytes);
          break;
        case collective::reduce_scatter: {
          const std::byte* const all = reduced(call, each, data, at);
          std::size_t begin = 0;
          for (std::size_t rank = 0; rank < me; ++rank) begin += part(each, rank);
          put(each.out, 0, all + begin, part(each, me));
          break;
        }
        case collective::broadcast:
          put(each.out, 0, from(data, root) + at, bytes);
          break;
        case collective::scatter:
          put(each.out, 0, from(data, root) + at + me * (bytes / ranks()), bytes / ranks());
          break;
        case collective::gather:
          for (std::size_t rank = 0; rank < ranks(); ++rank) {
            put(each.out, rank * bytes, from(data, rank) + at, bytes);
          }
          break;
        case collective::all_gather:
          for (std::size_t rank = 0; rank < ranks(); ++rank) {
            put(each.out, end, from(data, rank), call.received[rank]);
            end += call.received[rank];
          }
          break;
        case collective::all_to_all:
          for (std::size_t rank = 0; rank < ranks(); ++rank) {
            std::vector<std::uint64_t> sizes(ranks());
            std::memcpy(sizes.data(), data.in.data() + data.begins[rank], header());
            CHECK(sizes[me] == call.received[rank]);
            const auto begin = std::accumulate(
                sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(me), std::size_t{0});
            put(each.out, end, from(data, rank) + begin, call.received[rank]);
            end += call.received[rank];
          }
          break;
        case collective::barrier:
        case collective::message:
        case collective::arena:
          FAIL_CHECK("this backend moves data between all ranks only");
      }
      at += padded(bytes);
    }
  }
  /// So that every tensor is aligned.
  [[nodiscard]] static std::size_t padded(std::size_t bytes) { return (bytes + 7) / 8 * 8; }
  [[nodiscard]] std::size_t part(const cohort::comm::device_tensor& of, std::size_t rank) const {
    return (of.count / ranks() + (rank < of.count % ranks() ? 1 : 0)) * of.size;
  }

  std::shared_ptr<device_script> script_;
  struct set_state {
    cohort::communicator over;
    std::function<void(std::exception_ptr)> opened;
    bool is_open = false;
  };
  std::map<std::uint32_t, set_state> sets_;
  cohort::communicator over_;  // of the operation at the head
  int calls_ = 0;
  std::deque<std::unique_ptr<running>> waiting_;
};

/// What a coordinator is given.
struct fake_backend {
  std::shared_ptr<device_script> script = std::make_shared<device_script>();
  [[nodiscard]] std::shared_ptr<cohort::comm::device_backend> make_device_backend() const {
    return std::make_shared<fake_device>(script);
  }
};

}  // namespace cohort_test
