// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once
/// \file
/// Bodies of `nccl/backend/device_plane.hpp`, but for those of the operations.

#include <cohort/device/nvtx.hpp>
#include <cohort/nccl/backend/device_plane.hpp>

#include <cohort/nccl/backend/elected.ipp>
#include <cohort/nccl/backend/overdue.ipp>
#include <cohort/nccl/extra/fusion_arena.ipp>
#include <cohort/nccl/extra/host_path.ipp>
#include <cohort/nccl/life/agreement.hpp>

#include <cohort/core/log.hpp>
#include <cohort/device/completion.hpp>
#include <cohort/device/uuid.hpp>

#include <algorithm>
#include <atomic>
#include <thread>

namespace cohort::nccl {

COHORT_INLINE device_plane::device_plane(const backend_options& options)
    : options_(options), device_(detail::device_for(options.communicator.device)) {
  device::attach_tools();  // before the first operation is submitted
}

COHORT_INLINE std::shared_ptr<comm::device_backend> make_device_plane(
    const backend_options& options) {
  return std::make_shared<device_plane>(options);
}

COHORT_INLINE device_plane::~device_plane() = default;

COHORT_INLINE void device_plane::facts(
    std::vector<std::pair<std::string, std::uint64_t>>& all) const {
  all.emplace_back("backend.pack_below", options_.pack_below);
  all.emplace_back("backend.hierarchical", options_.hierarchical ? 1 : 0);
  all.emplace_back("backend.host_path", options_.host_path ? 1 : 0);
  all.emplace_back("backend.node is given", options_.node >= 0 ? 1 : 0);
  all.emplace_back("backend.kernels", static_cast<std::uint64_t>(options_.kernels));
}

// ---- sets ------------------------------------------------------------------------------------

namespace detail {

/// Pinned memory and kernels, taken on a thread, because that may wait for whatever the device
/// does.
struct blocking_job {
  device::pinned_vector<std::byte> before;
  device::pinned_vector<std::byte> after;
  std::shared_ptr<device::pinned_vector<std::byte>> of_graphs;
  std::shared_ptr<const pack_kernels> kernels;
  std::exception_ptr failed;
  std::string no_kernels;  // why
  std::atomic<bool> done{false};
};

/// Those of the process, or why there are none.
inline void take_kernels(blocking_job& to, int device, const backend_options& options) {
  try {
    to.kernels = pack_kernels::of_device(device, options.nvrtc);
  } catch (const std::system_error& problem) {
    device::check_usable(device);
    to.no_kernels = problem.what();
    if (options.kernels != kernel_use::required) return;
    throw cohort::error(errc::not_supported, "kernels are required: " + to.no_kernels);
  }
}

}  // namespace detail

COHORT_INLINE progress::look_task<> device_plane::take_what_blocks() {
  const device::stream_options as{.device = device_, .high_priority = true};
  device::stream packing(as);
  device::stream unpacking(as);
  const device::stream domain = source_->domain_of(device_);  // where graphs run
  auto job = std::make_shared<detail::blocking_job>();
  const bool by_mpi = options_.hierarchical || options_.host_path;
  const std::size_t after_bytes = by_mpi ? between_bytes : staging_bytes;
  // It has a share of what it writes to, so nobody need wait for it.
  std::thread([job, packing, unpacking, domain, after_bytes, options = options_, device = device_] {
    try {
      job->before = device::pinned_vector<std::byte>(staging_bytes, packing);
      job->after = device::pinned_vector<std::byte>(after_bytes, unpacking);
      job->of_graphs = std::make_shared<device::pinned_vector<std::byte>>(staging_bytes, domain);
      if (options.kernels != kernel_use::off) detail::take_kernels(*job, device, options);
    } catch (...) {
      job->failed = std::current_exception();
    }
    job->done.store(true);
  }).detach();
  look_condition waiting(*source_, [job] { return job->done.load(); });
  co_await waiting;
  if (job->failed) std::rethrow_exception(std::move(job->failed));  // the thread keeps nothing
  source_->exclusively([&] {
    if (packing_) return;  // another set was opened at the same time
    packing_.emplace(std::move(packing));
    unpacking_.emplace(std::move(unpacking));
    std::swap(pack_staging_, job->before);
    std::swap(unpack_staging_, job->after);
    std::swap(graph_staging_, job->of_graphs);
    kernels_ = job->kernels;
    no_kernels_ = job->no_kernels;
  });
}

// What fails here alone is told to all in the exchange before NCCL's init, and for the
// communicators of nodes in one after it: either all ranks have a set or none has.
COHORT_INLINE progress::look_task<device_plane::set_state> device_plane::make_set(
    cohort::communicator over, turn place, turn node_place, std::optional<turn> arena_place) {
  communicator_options how = options_.communicator;
  how.device = device_;
  detail::problem bad;
  if (!packing_ && device_ >= 0) {
    auto taking = detail::told(take_what_blocks());
    bad = co_await taking;
  }
  set_state its;
  auto making = detail::make_all(
      over, detail::one_device(how, device_, std::move(place), nullptr, std::move(bad), this));
  std::vector<communicator> made = co_await making;
  its.comm = std::move(made.front());
  if (options_.host_path) {
    auto for_mpi = comm::joint::duplicate(over);
    its.everybody = co_await for_mpi;
  }
  if (arena_place) {
    auto enlisting = detail::told(enlist_all_on(its.comm.state(), std::move(*arena_place)));
    bad = co_await enlisting;
    auto agreeing = detail::agree(over, std::move(bad), "the fusion arenas were not registered");
    co_await agreeing;
  }
  if (!options_.hierarchical) co_return its;
  auto duplicated = comm::joint::duplicate(over);
  cohort::communicator all = co_await duplicated;
  auto divided = comm::joint::split_nodes(all, options_.node);
  cohort::communicator node = co_await divided;
  const bool flat = node.size() == all.size();
  if (!flat) {
    auto chosen = comm::joint::split(all, node.rank() == 0 ? 0 : -1);
    its.leaders = co_await chosen;
  }
  auto within =
      detail::told(make_node(flat ? cohort::communicator() : node, std::move(node_place), its));
  bad = co_await within;
  auto agreeing = detail::agree(all, std::move(bad), "the nodes' communicators were not made");
  co_await agreeing;
  co_return its;
}

COHORT_INLINE progress::look_task<> device_plane::make_node(cohort::communicator node, turn place,
                                                            set_state& its) {
  if (!node) co_return;
  communicator_options how = options_.communicator;
  how.device = device_;
  auto making =
      detail::make_all(node, detail::one_device(how, device_, std::move(place), nullptr, {}, this));
  std::vector<communicator> made = co_await making;
  its.node = std::move(made.front());
}

COHORT_INLINE void device_plane::attach(const cohort::communicator& parent) {
  source_ = &asio::use_service<issue_source>(parent.get_executor().context());
  // If somebody else has it, or there is no such device, the exchange before NCCL's init says so.
  if (!is_device() || source_->is_held_elsewhere(device_, this)) return;
  static_cast<void>(source_->hold(device_, this));
}

/// The place of the opening among the operations is that of the elected order: what was started
/// before it and cannot be issued yet comes first, on all ranks.
COHORT_INLINE void device_plane::open(std::uint32_t set, const cohort::communicator& over,
                                      std::function<void(std::exception_ptr)> done) {
  if (source_ == nullptr) attach(over);
  auto begin = [self = shared_from_this(), set, over, done = std::move(done)] {
    auto place = detail::place_for(over, self->device_);
    auto node_place = self->options_.hierarchical ? detail::place_for(over, self->device_) : turn();
    std::optional<turn> arena_place;
    if (self->arenas_made_ && self->registers()) {
      arena_place.emplace(detail::place_for(over, self->device_));
    }
    auto making =
        self->make_set(over, std::move(place), std::move(node_place), std::move(arena_place));
    auto made = [self, set, done](std::exception_ptr why, set_state its) {
      // So that what waits here ends with that, and not with its own failure.
      if (why) done(why);
      self->made(set, std::move(its), why);
      if (!why) done(nullptr);
    };
    progress::begin_look_task(detail::at_next_look(*self->source_, std::move(making)),
                              {.verb = "coordinator, on its device"}, std::move(made));
  };
  std::vector<work*> ended;
  source_->exclusively([&] {
    sets_[set];
    if (const auto place = reserved(set); place != held_.end()) {
      place->begin_opening = std::move(begin);
    } else {
      held_.push_back({nullptr, std::move(begin)});
    }
    submit_what_can_be(ended);
  });
  finish_outside(ended);
}

COHORT_INLINE void device_plane::reserve(std::uint32_t set) {
  source_->exclusively([&] { held_.push_back({nullptr, {}, set}); });
}

/// The place of a set whose opening has not been asked for.
COHORT_INLINE std::deque<device_plane::held>::iterator device_plane::reserved(std::uint32_t set) {
  return std::find_if(held_.begin(), held_.end(), [set](const held& each) {
    return each.op == nullptr && !each.begin_opening && each.set == set;
  });
}

COHORT_INLINE void device_plane::made(std::uint32_t set, set_state its, std::exception_ptr why) {
  const std::error_code code = detail::problem_of(why).code;
  std::vector<work*> ended;
  set_state unwanted;
  source_->exclusively([&] {
    set_state& known = sets_[set];
    if (!known.failed) known.failed = code ? code : failed_;
    if (known.failed) {
      unwanted = std::move(its);
    } else {
      known = std::move(its);
    }
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  for (const communicator& each : {unwanted.comm, unwanted.node}) {
    if (!each) continue;
    source_->ladder().bring_down(*each.state(), code ? code : make_error_code(errc::closed),
                                 "the coordinator has failed");
  }
}

namespace detail {

/// A rank may be in a reduction that another will not join. MPI must not use the number of that
/// communicator again, or what is still on its way is taken for something else.
inline void never_again(const cohort::communicator& one) {
  if (one) one.state()->keep();
}

}  // namespace detail

COHORT_INLINE void device_plane::close(std::uint32_t set) {
  if (source_ == nullptr) return;
  std::vector<work*> ended;
  std::vector<set_state> gone;  // their last handles take the lock
  source_->exclusively([&] {
    for (auto& [number, its] : sets_) {
      if (set != 0 && number != set) continue;
      if (failed_ || its.failed || (its.comm && its.comm.state()->has_failed)) {
        detail::never_again(its.leaders);
        detail::never_again(its.everybody);
      }
      gone.push_back(std::exchange(its, set_state()));
      its.failed = errc::closed;
    }
    if (const auto place = reserved(set); place != held_.end()) held_.erase(place);
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  gone.clear();
  source_->engine().started();  // for what has waited for a place
  if (set == 0 && is_device()) source_->let_go(device_, this);
}

COHORT_INLINE void device_plane::fail(std::error_code why, const std::string& text) {
  if (source_ == nullptr) return;
  std::vector<work*> ended;
  std::vector<std::shared_ptr<communicator_state>> comms;
  std::vector<cohort::communicator> by_mpi;
  std::optional<comm::backend_completion> between;
  source_->exclusively([&] {
    if (!failed_) failed_ = why;
    for (auto& [number, its] : sets_) {
      if (its.comm) comms.push_back(its.comm.state());
      if (its.node) comms.push_back(its.node.state());
      if (its.leaders) by_mpi.push_back(its.leaders);
      if (its.everybody) by_mpi.push_back(its.everybody);
    }
    if (between_ != nullptr && between_->stage_ == elected_work::stage::between_nodes) {
      between = between_->done_;  // what MPI has of it may never end
      between_->what_ = nullptr;
      between_ = nullptr;
    }
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  if (between) {
    call_at_look([self = shared_from_this(), each = *between, why] {
      auto& context = self->source_->engine().context();
      comm::joint::operation::leave_to_mpi(asio::use_service<comm::request_source>(context),
                                           self.get());
      each.in_look(why);
    });
  }
  for (const cohort::communicator& each : by_mpi) detail::never_again(each);
  source_->ladder().bring_down(comms, why, text);
}

// ---- operations ------------------------------------------------------------------------------

COHORT_INLINE std::string device_plane::refuses(const comm::device_call& what) const {
  if (!detail::is_reduction(what)) return {};
  const bool captured = what.use != comm::device_use::run;
  if (const char* const why = detail::not_of_nccl(what); why != nullptr) {
    if (!options_.host_path) return why;
    if (captured) return std::string(why) + ", and MPI's part cannot be captured";
    const std::string further = not_of_mpi(what);
    return further.empty() ? further : std::string(why) + ", " + further;
  }
  if (captured && options_.hierarchical) return "over nodes it goes through the host";
  if (captured && !detail::allows_graphs(options_.communicator.config)) {
    return "config.graphUsageMode does not allow graphs beside plain operations";
  }
  return {};
}

COHORT_INLINE std::shared_ptr<comm::device_graph> device_plane::make_graph(
    const std::string& name) {
  device::check_usable(device_);
  return std::make_shared<captured_graph>(name, device_);
}

COHORT_INLINE void device_plane::check_stream(const device::stream& one, const char* field) const {
  if (one.device() != device_) {
    throw cohort::error(errc::wrong_device, std::string(field) +
                                                ": device=" + std::to_string(one.device()) +
                                                ", coordinator.device=" + std::to_string(device_));
  }
  if (one.get() == cudaStreamPerThread) {
    throw cohort::error(
        errc::invalid_argument,
        std::string(field) + ": cudaStreamPerThread cannot be waited for from another thread");
  }
}

namespace detail {

inline cudaStream_t native_of(const void* producer) noexcept {
  return static_cast<cudaStream_t>(const_cast<void*>(producer));
}

}  // namespace detail

COHORT_INLINE void device_plane::check_buffer(const comm::device_buffer& one) const {
  if (one.where.device != device_) {
    throw cohort::error(errc::wrong_device, std::string(one.field) +
                                                ": device=" + std::to_string(one.where.device) +
                                                ", coordinator.device=" + std::to_string(device_));
  }
  if (one.where.producer == nullptr) return;
  check_stream(device::stream::borrow(detail::native_of(one.where.producer), one.where.device),
               one.field);
}

namespace detail {

/// What its producer has queued so far comes first.
inline void note_use(submission_mark& to, const comm::device_buffer& one) {
  buffer_use use{one.field, one.data, one.bytes, one.where.device, {}, one.lease};
  if (one.where.producer != nullptr) {
    use.producer = device::stream::borrow(native_of(one.where.producer), one.where.device);
    const bool known = std::any_of(to.uses.begin(), to.uses.end(), [&](const buffer_use& other) {
      return other.producer == use.producer;
    });
    if (!known) to.after.push_back(use.producer->record());
  }
  to.uses.push_back(std::move(use));
}

}  // namespace detail

COHORT_INLINE std::shared_ptr<comm::device_mark> device_plane::mark(
    std::span<const comm::device_buffer> buffers, const stream_ref& on) {
  auto made = std::make_shared<submission_mark>();
  device::check_usable(device_);
  if (on.device >= 0) {
    // What is behind it waits for the operation, if that is only enqueued.
    const comm::device_buffer as{
        "on", nullptr, 0, {memory_space::device, on.device, on.native}, on.keep};
    check_stream(device::stream::borrow(detail::native_of(on.native), on.device), "on");
    detail::note_use(*made, as);
  }
  for (const comm::device_buffer& one : buffers) {
    if (one.bytes == 0 && one.where.device < 0) continue;
    check_buffer(one);  // one of nothing, too: its result is made beside it
    if (one.bytes != 0) detail::note_use(*made, one);
  }
  return made;
}

COHORT_INLINE stream_ref device_plane::results() {
  return source_->exclusively([&]() -> stream_ref {
    try {
      if (!results_) results_.emplace(device::stream_options{.device = device_});
      return *results_;
    } catch (const std::system_error&) {
      return {};  // what is wrong with the device is told by whatever uses it
    }
  });
}

// Its stream may have got work since the submission, which the operation is not to wait for.
COHORT_INLINE void device_plane::add_result(comm::device_mark& to,
                                            const comm::device_buffer& made) {
  auto& mark = static_cast<submission_mark&>(to);
  if (made.bytes == 0) return;
  check_buffer(made);
  buffer_use use{made.field, made.data, made.bytes, made.where.device, {}, made.lease};
  if (made.where.producer != nullptr) {
    use.producer = device::stream::borrow(detail::native_of(made.where.producer), device_);
  }
  mark.uses.push_back(std::move(use));
  const auto taken = source_->exclusively([&] { return results_; });
  if (taken) {
    mark.after.push_back(taken->record());
  } else if (mark.uses.back().producer) {
    mark.after.push_back(mark.uses.back().producer->record());
  }
}

COHORT_INLINE void device_plane::start(comm::device_call& what, comm::backend_completion done) {
  if (what.kind == comm::collective::arena) return start_arena(what, done);
  auto op = std::make_unique<elected_work>(shared_from_this(), what, done);
  std::vector<work*> ended;
  source_->exclusively([&] {
    live_.reserve(live_.size() + 1);
    held_.push_back({op.get()});
    live_.push_back(op.release());
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  source_->engine().started();
}

COHORT_INLINE void device_plane::sizes_known(comm::device_call& what) {
  std::vector<work*> ended;
  source_->exclusively([&] {
    what.sized = true;
    submit_what_can_be(ended);
  });
  finish_outside(ended);
  source_->engine().started();
}

/// In the order in which they were started; the first that cannot be issued yet holds the others.
COHORT_INLINE void device_plane::submit_what_can_be(std::vector<work*>& ended) {
  while (!held_.empty()) {
    if (held_.front().op == nullptr) {
      if ((between_ != nullptr || !held_.front().begin_opening) && !failed_) return;
      const auto begin = std::move(held_.front().begin_opening);
      held_.pop_front();  // first, for what fails at once goes on with the next
      if (begin) begin();
      continue;
    }
    elected_work& op = *held_.front().op;
    const set_state& set = sets_[op.what_->set];
    if (failed_) {
      op.fail(failed_);
    } else if (set.failed) {
      op.fail(set.failed);
    } else if (!set.comm || !op.what_->sized || between_ != nullptr) {
      return;
    }
    held_.pop_front();
    if (!op.error()) {
      op.comm = set.comm.state();
      op.by_host_ = goes_by_host(*op.what_);
      if (op.by_host_) {
        op.stage_ = elected_work::stage::within_node;
        between_ = &op;
      } else if (set.node && op.what_->kind == comm::collective::all_reduce) {
        op.comm = set.node.state();
        op.stage_ = elected_work::stage::within_node;
        between_ = &op;
      }
      try {
        op.lay_out();
        if (op.use_ != comm::device_use::capture) op.timed_ = times_.start(*op.what_);
      } catch (const std::system_error& failed) {
        op.fail(failed.code());
      } catch (const std::bad_alloc&) {
        op.fail(std::make_error_code(std::errc::not_enough_memory));
      }
    }
    if (op.error() || !source_->submit_held(op)) {
      ended.push_back(&op);
    } else {
      queued_.push_back(&op);
    }
  }
  pack_ahead();
}

/// What goes wrong here is tried once more when it is issued, and told if it goes wrong again.
COHORT_INLINE void device_plane::pack_ahead() noexcept {
  for (elected_work* const op : queued_) {
    if (op->error() || op->what_ == nullptr) continue;  // given up: it is not in anybody's way
    try {
      if (!op->pack()) return;
    } catch (...) {
      return;  // what is behind it would have the memory or the device no more than it
    }
  }
}

COHORT_INLINE void device_plane::call_at_look(std::function<void()> what) const {
  progress::begin_look_task(detail::call_at_look(*source_, std::move(what)),
                            {.verb = "coordinator, on its device"}, [](std::exception_ptr) {});
}

COHORT_INLINE void device_plane::finish_outside(std::vector<work*>& ended) {
  source_->end_at_next_look(ended);
}

COHORT_INLINE comm::device_buffer device_plane::keep(const comm::device_buffer& of,
                                                     std::shared_ptr<comm::device_mark>& mark) {
  const device::scoped_device here(device_);
  std::vector<device::stream> ordered;  // with the submission
  if (mark) {
    for (const buffer_use& use : static_cast<submission_mark&>(*mark).uses) {
      if (use.producer) ordered.push_back(*use.producer);
    }
  }
  if (ordered.empty()) {
    // Its caller could change it before the copy is over, and nobody would know.
    throw cohort::error(errc::not_supported,
                        std::string(of.field) +
                            ": memory that no stream is ordered with cannot be kept for an "
                            "operation that its rank has given up");
  }
  device::stream on(device::stream_options{.device = device_});
  device::vector<std::byte> copy(of.bytes, on);
  for (const device::event& one : static_cast<submission_mark&>(*mark).after) on.wait(one);
  device::check(cudaMemcpyAsync(copy.data(), of.data, of.bytes, cudaMemcpyDeviceToDevice, on.get()),
                "cudaMemcpyAsync", device_);
  // Nothing that follows on these streams comes before the copy.
  const device::event copied = on.record();
  for (const device::stream& each : ordered) static_cast<void>(each.try_wait(copied));
  comm::device_buffer kept = of;
  kept.data = copy.data();
  kept.where.producer = on.get();
  kept.lease = copy.lease();
  auto fresh = std::make_shared<submission_mark>();
  detail::note_use(*fresh, kept);
  mark = std::move(fresh);
  return kept;
}

COHORT_INLINE bool device_plane::deadline_passed(comm::device_call& what) {
  return source_->exclusively([&] {
    for (elected_work* const op : live_) {
      if (op->what_ == &what) return source_->deadline_passed(*op) || is_overdue(*op);
    }
    return true;  // it has ended
  });
}

COHORT_INLINE bool device_plane::forget(const comm::request_operation& op) {
  if (source_ == nullptr) return false;
  return source_->exclusively([&] {
    for (const auto& job : arena_jobs_) {
      if (job->what == nullptr || !job->done.is_of(op)) continue;
      job->what = nullptr;
      return true;
    }
    for (elected_work* const one : live_) {
      if (one->what_ == nullptr || !one->done_.is_of(op)) continue;
      const auto is_it = [&](const held& each) { return each.op == one; };
      if (std::any_of(held_.begin(), held_.end(), is_it)) return false;
      one->what_ = nullptr;
      return true;
    }
    return false;
  });
}

// ---- the timeline ----------------------------------------------------------------------------

COHORT_INLINE std::string device_plane::device_name() const {
  std::string name = "device " + std::to_string(device_);
  try {
    const device::device_uuid id = device::uuid(device_);
    if (id.known()) name += " " + id.text();
  } catch (const std::system_error&) {
    // The opening says what is wrong with it.
  }
  return name;
}

COHORT_INLINE void device_plane::record_times(bool yes) {
  if (source_ == nullptr || !is_device()) return;
  source_->exclusively([&] { times_.record(yes, device_); });
}

COHORT_INLINE void device_plane::take_times(
    const std::function<void(const comm::device_span&)>& visit) {
  if (source_ == nullptr) return;
  const auto found = source_->exclusively([&] { return times_.take(); });
  for (const comm::device_span& each : found) visit(each);
}

/// Without kernels host code does what NCCL cannot, and the first time this is told.
COHORT_INLINE void device_plane::run_moves(const device::stream& on,
                                           device::pinned_vector<std::byte>& staging,
                                           captured_calls* graph) {
  if (!kernels_ && !no_kernels_.empty() && moves_.change()) {
    log::write(log::level::warning, "device " + std::to_string(device_) +
                                        ": what NCCL cannot do to elements is done by the host, "
                                        "which is slow, for there are no kernels: " +
                                        std::exchange(no_kernels_, {}));
  }
  moves_.run(on, {kernels_.get(), &staging, graph});
}

}  // namespace cohort::nccl
