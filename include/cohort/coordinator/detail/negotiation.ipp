// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of coordinator/negotiation.hpp.

#include <cohort/coordinator/negotiation.hpp>

#include <cohort/coordinator/bundle.hpp>
#include <cohort/core/log.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

namespace cohort::coordination {

inline constexpr int control_tag = 0;
// The first byte of a message of one byte: is anybody there? [W4]
inline constexpr std::byte ping{2};
inline constexpr std::byte pong{3};
// All ranks have closed after a fault. It goes down the tree, after the last message.
inline constexpr std::byte all_closed{4};
// The last message of a rank whose messages MPI has failed to send or receive: it has closed. The
// rank that was first follows, in four bytes.
inline constexpr std::byte has_broken{5};
/// For what is then still on its way inside MPI.
inline constexpr std::chrono::milliseconds settling_time{200};
inline constexpr std::size_t longest_name = 65535;
/// The token of an operation that has ended here before it was decided.
inline constexpr std::uint64_t nobody = 1;

[[nodiscard]] inline task* task_of(std::uint64_t token) noexcept {
  return token == nobody ? nullptr : reinterpret_cast<task*>(token);
}

// ---- control operations ------------------------------------------------------------------------

template <class Any>
negotiation<Any>::control_operation::control_operation(negotiation& owner, std::size_t edge,
                                                       bool sends) noexcept
    : request_operation(&run), owner_(&owner), edge_(edge), sends_(sends) {
  advance_ = &advanced;
  advances_failed_ = true;
  cancellable = !sends;
  verb = sends ? "control_send" : "control_recv";
  rank = owner.rank_;
}

template <class Any>
bool negotiation<Any>::control_operation::advanced(request_operation* base) {
  auto* self = static_cast<control_operation*>(base);
  negotiation& owner = *self->owner_;
  bool goes_on = false;
  if (self->failed()) {
    owner.control_failed(*self);
  } else {
    goes_on = self->sends_ ? owner.sent(*self) : owner.received(*self);
  }
  if (!goes_on) {
    if (!self->sends_) owner.edges_[self->edge_].receive = nullptr;
    self->owner_ = nullptr;
    --owner.control_operations_;
    owner.check_released();
  }
  return goes_on;
}

template <class Any>
void negotiation<Any>::control_operation::run(operation* base, action) {
  delete static_cast<control_operation*>(base);
}

// ---- opening -----------------------------------------------------------------------------------

template <class Any>
protocol::tree negotiation<Any>::make_tree(const communicator& parent,
                                           const coordinator_options& options) {
  const int radix = static_cast<int>(options.radix);
  const auto& bells = parent.state()->bells;
  if (!bells) return protocol::tree::balanced(parent.rank(), parent.size(), radix);
  std::vector<int> node_of;
  for (int rank = 0; rank < parent.size(); ++rank) {
    node_of.push_back(bells->node_of(parent.state()->bell_rank(rank)));
  }
  return protocol::tree::node_aware(parent.rank(), node_of, radix);
}

template <class Any>
protocol::node_options negotiation<Any>::node_options_of(const coordinator_options& options) {
  protocol::node_options result;
  result.cache_capacity = static_cast<std::size_t>(options.cache_capacity);
  result.cache_keep = static_cast<std::size_t>(options.cache_keep);
  result.name_capacity = static_cast<std::size_t>(options.name_capacity);
  result.firsts = static_cast<std::size_t>(options.firsts);
  result.poison_capacity = static_cast<std::size_t>(options.poison_capacity);
  result.in_flight = static_cast<std::size_t>(options.in_flight);
  result.fusion.fuse_below = options.fusion_threshold;
  result.fusion.pack_limit = options.fusion_buffer;
  result.fusion.alignment = 8;
  result.fusion.pack_most =
      static_cast<std::size_t>(std::max<std::uint64_t>(options.fusion_buffer / 64, 1));
  result.fusion.patience = static_cast<std::size_t>(options.patience);
  result.query_timeout = static_cast<std::uint64_t>(options.query_timeout.count());
  result.decides_when_asked = true;
  if (!options.frozen_plan.empty()) {
    auto plan = std::make_shared<std::vector<protocol::frozen_pack>>();
    for (const auto& names : options.frozen_plan) plan->push_back({0, names});
    result.plan = std::move(plan);
  }
  return result;
}

template <class Any>
negotiation<Any>::negotiation(const communicator& parent, const coordinator_options& options,
                              std::shared_ptr<comm::any_backend> backend)
    : instance(parent, options),
      parent_(parent),
      source_(parent.state()->source),
      backend_(std::move(backend)),
      node_(make_tree(parent, options),
            std::vector<protocol::rank_set>{protocol::rank_set::span(0, parent.size() - 1)},
            node_options_of(options)),
      plane_(*this, options_, options.slots),
      timeline_(std::make_shared<timeline>(parent.rank(), parent.size())) {
  if (const auto& bells = parent.state()->bells) {
    const auto node_of = [&](int rank) { return bells->node_of(parent.state()->bell_rank(rank)); };
    for (int rank = 0; rank < rank_; ++rank) local_rank_ += node_of(rank) == node_of(rank_) ? 1 : 0;
  }
}

template <class Any>
negotiation<Any>::~negotiation() {
  const comm::request_source::guard hold(source_);
  source_.forget(*this);
}

template <class Any>
std::shared_ptr<negotiation<Any>> negotiation<Any>::make(
    const communicator& parent, const coordinator_options& options,
    std::shared_ptr<comm::any_backend> backend) {
  if (!parent) throw error(errc::invalid_communicator, "coordinator");
  validate(options);
  auto one = std::make_shared<negotiation>(parent, options, std::move(backend));
  asio::use_service<registry>(one->engine_.context()).add(one);
  {
    const comm::request_source::guard hold(one->source_);
    one->source_.watch(*one);
  }
  one->open();
  return one;
}

template <class Any>
void negotiation<Any>::open() {
  if (!options_.timeline.empty()) {
    timeline_options recording;
    recording.ring = static_cast<std::size_t>(options_.timeline_ring);
    if (const std::error_code bad = timeline_->start(options_.timeline, recording)) {
      log::write(log::level::warning, "timeline " + options_.timeline + ": " + bad.message());
    }
  }
  const comm::request_source::guard hold(source_);
  const errc bad = source_.usable();
  if (bad != errc{}) return break_down(std::make_exception_ptr(error(bad, "coordinator")));
  auto* steps = new opening(*this);
  ++control_operations_;
  try {
    steps->begin();
    engine_.started();
  } catch (const std::system_error& problem) {
    --control_operations_;
    delete steps;
    break_down(std::make_exception_ptr(problem));
  }
}

// All of it is stages of one operation, inside the look: also a context that goes away while a
// coordinator is being opened can see it through, for the other ranks wait inside MPI.
//
// It begins with the parent's second communicator, and what comes is made one after the other: with
// Open MPI 4.1 a collective that is posted while its communicator is being duplicated is taken for
// a part of that, and the program may well start one on the first.
template <class Any>
void negotiation<Any>::opening::begin() {
  duplicate(owner_->parent_.state()->exchange.native(), 0);
}

template <class Any>
void negotiation<Any>::opening::duplicate(MPI_Comm from, std::size_t index) {
  MPI_Request request = MPI_REQUEST_NULL;
  mpi::check(MPI_Comm_idup(from, &made_[index], &request), "MPI_Comm_idup");
  owner_->source_.add(request, *this);
}

template <class Any>
bool negotiation<Any>::opening::advanced(request_operation* base) {
  auto* self = static_cast<opening*>(base);
  negotiation& owner = *self->owner_;
  bool goes_on = false;
  try {
    if (self->failed()) throw std::system_error(self->error(), "coordinator");
    goes_on = self->step();
  } catch (...) {
    owner.break_down(std::current_exception());
  }
  if (goes_on) return true;
  self->owner_ = nullptr;
  --owner.control_operations_;
  owner.check_released();
  return false;
}

template <class Any>
void negotiation<Any>::opening::run(operation* base, action) {
  delete static_cast<opening*>(base);
}

template <class Any>
bool negotiation<Any>::opening::step() {
  negotiation& owner = *owner_;
  MPI_Request request = MPI_REQUEST_NULL;
  switch (stage_++) {
    case 0:
      duplicate(made_[0], 1);
      return true;
    case 1: {
      owner.control_ = communicator::adopt(owner.parent_, mpi::comm::adopt(made_[0]),
                                           mpi::comm::adopt(made_[1]));
      // The largest of each value and of its complement tell of the same value where all agree.
      for (const std::uint64_t value : values_) {
        const auto number = static_cast<std::int64_t>(value >> 1U ^ value << 63U);
        compared_.push_back(number);
        compared_.push_back(~number);
      }
      mpi::check(mpi::post::iallreduce(MPI_IN_PLACE, compared_.data(),
                                       static_cast<MPI_Count>(compared_.size()), MPI_INT64_T,
                                       MPI_MAX, owner.control_.native(), &request),
                 "MPI_Iallreduce");
      owner.source_.add(request, *this);
      return true;
    }
    case 2: {
      bool same = true;
      for (std::size_t i = 0; i < compared_.size(); i += 2) {
        same = same && compared_[i] == ~compared_[i + 1];
      }
      if (same) {
        stage_ = 4;
        duplicate(owner.control_.state()->data.native(), 2);
        duplicate(owner.control_.state()->exchange.native(), 3);
        return true;
      }
      const auto count = static_cast<MPI_Count>(values_.size());
      gathered_.resize(values_.size() * static_cast<std::size_t>(owner.size_));
      mpi::check(mpi::post::iallgather(values_.data(), count, MPI_UINT64_T, gathered_.data(), count,
                                       MPI_UINT64_T, owner.control_.native(), &request),
                 "MPI_Iallgather");
      owner.source_.add(request, *this);
      return true;
    }
    case 3:
      owner.name_differing(gathered_);
      return false;
    default:
      owner.slots_made(communicator::adopt(owner.control_, mpi::comm::adopt(made_[2]),
                                           mpi::comm::adopt(made_[3])));
      return false;
  }
}

/// The rows of the table, and a digest of the frozen plan.
template <class Any>
std::vector<std::uint64_t> negotiation<Any>::option_values(const coordinator_options& options) {
  std::vector<std::uint64_t> values;
  for (const option_row& row : option_table()) values.push_back(row.get(options));
  std::uint64_t digest = 14695981039346656037U;
  for (const auto& pack : options.frozen_plan) {
    for (const std::string& name : pack) {
      for (const char c : name) digest = (digest ^ static_cast<unsigned char>(c)) * 1099511628211U;
      digest = (digest ^ 256U) * 1099511628211U;
    }
    digest = (digest ^ 257U) * 1099511628211U;
  }
  values.push_back(digest);
  return values;
}

template <class Any>
void negotiation<Any>::name_differing(const std::vector<std::uint64_t>& gathered) {
  const std::span<const option_row> table = option_table();
  const std::size_t fields = table.size() + 1;
  std::vector<std::string> names;
  std::map<std::vector<std::uint64_t>, protocol::rank_set> kinds;  // by the values that differ
  std::vector<std::vector<std::uint64_t>> differing(static_cast<std::size_t>(size_));
  std::string text = "coordinator options differ between ranks:";
  for (std::size_t field = 0; field < fields; ++field) {
    std::map<std::uint64_t, protocol::rank_set> groups;
    for (int rank = 0; rank < size_; ++rank) {
      groups[gathered[static_cast<std::size_t>(rank) * fields + field]].insert(rank);
    }
    if (groups.size() == 1) continue;
    names.emplace_back(field < table.size() ? table[field].name : "frozen_plan");
    for (const auto& [value, ranks] : groups) {
      for (const int rank : ranks.list()) {
        differing[static_cast<std::size_t>(rank)].push_back(value);
      }
    }
    text += (names.size() == 1 ? " " : "; ") + names.back() + ":";
    for (const auto& [value, ranks] : groups) {
      text += ' ';  // apart: g++ 12 takes the one expression for an overlapping copy
      text += std::to_string(value) + " on " + protocol::detail::ranks_text(ranks) + ",";
    }
    text.pop_back();
  }
  text = "rank " + std::to_string(rank_) + ": " + text;
  for (int rank = 0; rank < size_; ++rank) {
    kinds[differing[static_cast<std::size_t>(rank)]].insert(rank);
  }
  std::vector<mismatch_error::side> sides;
  for (const auto& [values, ranks] : kinds) {
    mismatch_error::side& one = sides.emplace_back();
    one.ranks = ranks.list();
    for (const std::uint64_t value : values) one.values.push_back(std::to_string(value));
    one.site = "?";
  }
  std::sort(sides.begin(), sides.end(),
            [](const auto& a, const auto& b) { return a.ranks.front() < b.ranks.front(); });
  break_down(std::make_exception_ptr(mismatch_error(names, std::move(sides), text)));
}

template <class Any>
void negotiation<Any>::slots_made(communicator made) {
  slots_ = std::move(made);
  const comm::request_source::guard hold(source_);
  std::vector<MPI_Comm> slots{slots_.state()->data.native(), slots_.state()->exchange.native()};
  slots.resize(options_.slots);
  plane_.open(*control_.state(), rank_, size_, control_.state()->exchange.native(),
              std::move(slots), backend_.get());
  const auto add_edge = [this](int rank) {
    edge& one = edges_.emplace_back();
    one.rank = rank;
    one.in.resize(static_cast<std::size_t>(options_.control_message));
    one.out.reserve(static_cast<std::size_t>(options_.control_message));
  };
  if (!node_.shape().is_root()) add_edge(node_.shape().parent());
  for (const int child : node_.shape().children()) add_edge(child);
  if (!control_.state()->bells) source_.forbid_parking();
  ready_ = true;
  try {
    for (std::size_t i = 0; i < edges_.size(); ++i) post_receive(i);
  } catch (const std::system_error& problem) {
    return break_down(std::make_exception_ptr(problem));
  }
  if (rank_ == 0) log::write(log::level::debug, "coordinator: " + describe(options_));
  touch();
}

// ---- messages ----------------------------------------------------------------------------------
//
// A message is one byte, 1 if it goes on in the next one, and bytes of the protocol. [T1]

template <class Any>
void negotiation<Any>::post_receive(std::size_t index) {
  auto* op = new control_operation(*this, index, false);
  ++control_operations_;
  edges_[index].receive = op;
  source_.mark_idle(*op);
  const int rc = repost_receive(*op);
  if (rc == MPI_SUCCESS) return;
  edges_[index].receive = nullptr;
  --control_operations_;
  delete op;
  mpi::check(rc, "MPI_Irecv");
}

template <class Any>
int negotiation<Any>::repost_receive(control_operation& op) {
  edge& from = edges_[op.edge_];
  MPI_Request request = MPI_REQUEST_NULL;
  const int rc = mpi::post::irecv(from.in.data(), static_cast<MPI_Count>(from.in.size()), MPI_BYTE,
                                  from.rank, control_tag, control_.native(), &request);
  if (rc == MPI_SUCCESS) source_.add(request, op);
  return rc;
}

template <class Any>
bool negotiation<Any>::received(control_operation& op) {
  if (broken_) {  // the node knows of tasks that have ended
    check_released();
    return false;
  }
  edge& from = edges_[op.edge_];
  int count = 0;
  MPI_Get_count(&op.status, MPI_BYTE, &count);
  ++statistics_.messages_received;
  const std::span<const std::byte> bytes(from.in.data(), static_cast<std::size_t>(count));
  try {
    if (bytes.empty()) {
      throw protocol::protocol_error(protocol::fault::malformed,
                                     "an empty message from rank " + std::to_string(from.rank));
    }
    const auto part = bytes.subspan(1);
    if (bytes[0] == ping) {
      from.answers = true;
      flush();
    } else if (bytes[0] == pong) {
      answered_ = clock::now();
    } else if (bytes[0] == all_closed) {
      settle();
    } else if (bytes[0] == has_broken) {
      peer_broke(bytes);
    } else if (bytes[0] != std::byte{0} || !from.assembly.empty()) {
      from.assembly.insert(from.assembly.end(), part.begin(), part.end());
      if (bytes[0] == std::byte{0}) {
        take(from.rank, from.assembly);
        from.assembly.clear();
      }
    } else {
      take(from.rank, part);
    }
  } catch (...) {
    break_down(std::current_exception());
    return false;
  }
  stay_awake();
  check_released();
  if (releasing_) return false;
  const int rc = repost_receive(op);
  if (rc == MPI_SUCCESS) return true;
  op.fail(mpi::make_error(rc));
  control_failed(op);
  return false;
}

template <class Any>
void negotiation<Any>::take(int from, std::span<const std::byte> message) {
  node_.receive(from, message, nanoseconds(engine_.coarse_now()));
  advance();
}

// Messages first: what is started here then overlaps with their way. A burst of submissions comes
// as one message, so deciding at once separates nothing that could have shared a pack.
template <class Any>
void negotiation<Any>::advance() {
  unsent_ = 0;
  if (done_ != 0) node_.finished(std::exchange(done_, 0));
  node_.decide();
  flush();
  perform();
  flush();
  if (!adding_.empty()) confirm_sets();
  if (!making_.empty()) make_sets();
}

template <class Any>
void negotiation<Any>::flush() {
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    edge& one = edges_[i];
    if (!one.sending && one.answers) {
      one.answers = false;
      send_sign(i, pong);
    }
    if (!one.sending && one.asks) {
      one.asks = false;
      send_sign(i, ping);
    }
    if (!one.sending && node_.has_message(one.rank)) send(i);
    if (!one.sending && one.settles) {
      one.settles = false;
      send_sign(i, all_closed);
    }
  }
}

template <class Any>
void negotiation<Any>::send_sign(std::size_t index, std::byte sign) {
  edge& to = edges_[index];
  to.out.assign(1, sign);
  to.sent = 0;
  to.sending = true;
  post_out(index);
}

template <class Any>
void negotiation<Any>::send(std::size_t index) {
  edge& to = edges_[index];
  to.out.clear();
  to.out.push_back(std::byte{0});
  if (!node_.take_message(to.rank, to.out)) return;
  to.sent = 0;
  to.sending = true;
  post_out(index);
}

template <class Any>
void negotiation<Any>::post_out(std::size_t index) {
  edge& to = edges_[index];
  MPI_Request request = MPI_REQUEST_NULL;
  do {
    if (const int rc = post_fragment(index, request); rc != MPI_SUCCESS) {
      to.sending = false;
      std::rethrow_exception(no_connection(to.rank, mpi::make_error(rc)));
    }
    // Short messages have left when MPI returns: they need not wait for a look.
    if (!comm::request_source::complete_already(request)) {
      auto* op = new control_operation(*this, index, true);
      op->peer = to.rank;
      ++control_operations_;
      source_.add(request, *op);
      wake_receiver(index);  // for without it a longer message does not leave
      return;
    }
    has_left(index);
  } while (to.sending);
}

// The byte before a fragment is overwritten; it has been sent with the fragment before.
template <class Any>
int negotiation<Any>::post_fragment(std::size_t index, MPI_Request& request) {
  edge& to = edges_[index];
  const auto most = static_cast<std::size_t>(options_.control_message);
  const std::size_t left = to.out.size() - to.sent;
  const std::size_t bytes = std::min(left, most);
  if (to.out.size() > 1) to.out[to.sent] = bytes < left ? std::byte{1} : std::byte{0};
  const int rc = mpi::post::isend(to.out.data() + to.sent, static_cast<MPI_Count>(bytes), MPI_BYTE,
                                  to.rank, control_tag, control_.native(), &request);
  if (rc != MPI_SUCCESS) return rc;
  to.sent += bytes < left ? bytes - 1 : bytes;
  ++statistics_.messages_sent;
  statistics_.bytes_sent += bytes;
  return rc;
}

template <class Any>
void negotiation<Any>::wake_receiver(std::size_t index) {
  if (const auto& bells = control_.state()->bells) {
    bells->announce(control_.state()->bell_rank(edges_[index].rank));
  }
}

/// MPI has taken a fragment.
template <class Any>
void negotiation<Any>::has_left(std::size_t index) {
  wake_receiver(index);
  edges_[index].sending = edges_[index].sent < edges_[index].out.size();
}

template <class Any>
bool negotiation<Any>::sent(control_operation& op) {
  if (broken_) {
    wake_receiver(op.edge_);
    edges_[op.edge_].sending = false;
    return false;
  }
  if (!making_.empty()) touch();
  has_left(op.edge_);
  edge& to = edges_[op.edge_];
  if (to.sending) {
    MPI_Request request = MPI_REQUEST_NULL;
    const int rc = post_fragment(op.edge_, request);
    if (rc == MPI_SUCCESS) {
      source_.add(request, op);
      return true;
    }
    op.fail(mpi::make_error(rc));
    control_failed(op);
    return false;
  }
  if (node_.has_message(to.rank) || to.asks || to.answers || to.settles) touch();
  return false;
}

// MPI says that a message cannot be sent or received: the instance ends here, as when a member
// dies. A cancelled receive is the end that was asked for.
template <class Any>
void negotiation<Any>::control_failed(control_operation& op) {
  if (op.sends_) {
    edges_[op.edge_].sending = false;
    edges_[op.edge_].sent = 0;  // it has not arrived
  }
  if (releasing_ || closed_) return;
  break_down(no_connection(edges_[op.edge_].rank, op.error()));
}

template <class Any>
std::exception_ptr negotiation<Any>::no_connection(int peer, std::error_code why) const {
  return std::make_exception_ptr(peer_lost_error(
      {peer}, "rank " + std::to_string(rank_) + ": coordinator: no connection to rank " +
                  std::to_string(peer) + ": " + why.message()));
}

/// Whether a child has, or will get, all that it needs to end: CLOSE, and after a fault the word
/// that all have closed. It ends before its parent, and nobody would receive more.
template <class Any>
bool negotiation<Any>::can_end(const edge& child) const noexcept {
  return node_.log().closed && node_.has_log(child.rank) && child.sent == child.out.size() &&
         (!closed_by_fault_ || (settled_ && !child.settles));
}

// The others would wait for this rank until their deadlines. So it sends one more message to each
// neighbour, who passes it on; also to the one to whom the last has failed, for that may have been
// for want of memory. What does not arrive, they find out at their deadlines.
template <class Any>
void negotiation<Any>::tell_broken() {
  const std::size_t above = edges_.size() - node_.shape().children().size();
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    edge& to = edges_[i];
    if (i >= above && can_end(to)) continue;
    const int first = lost_ < 0 ? rank_ : lost_;
    to.last[0] = has_broken;
    for (unsigned byte = 0; byte < 4; ++byte) {
      to.last[1 + byte] = static_cast<std::byte>(static_cast<unsigned>(first) >> 8 * byte);
    }
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi::post::isend(to.last.data(), static_cast<MPI_Count>(to.last.size()), MPI_BYTE, to.rank,
                         control_tag, control_.native(), &request) != MPI_SUCCESS) {
      continue;
    }
    ++statistics_.messages_sent;
    statistics_.bytes_sent += to.last.size();
    if (!comm::request_source::complete_already(request)) {
      auto* op = new control_operation(*this, i, true);
      op->peer = to.rank;
      ++control_operations_;
      source_.add(request, *op);
    }
    wake_receiver(i);
  }
}

template <class Any>
void negotiation<Any>::peer_broke(std::span<const std::byte> message) {
  unsigned first = 0;
  for (std::size_t byte = std::min<std::size_t>(message.size(), 5); byte-- > 1;) {
    first = first << 8U | static_cast<unsigned>(message[byte]);
  }
  if (message.size() != 5 || first >= static_cast<unsigned>(size_)) {
    throw protocol::protocol_error(protocol::fault::malformed, "a last message");
  }
  lost_ = static_cast<int>(first);
  throw peer_lost_error({lost_}, "rank " + std::to_string(rank_) + ": coordinator: rank " +
                                     std::to_string(lost_) +
                                     " has closed: it cannot send or receive control messages");
}

// ---- what the log says -------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::perform() {
  using protocol::action_kind;
  for (std::size_t i = 0; i < node_.actions().size(); ++i) {
    const protocol::action one = node_.actions()[i];
    switch (one.kind) {
      case action_kind::start:
        start(one);
        break;
      case action_kind::start_join:
        start_join(one);
        break;
      case action_kind::fail:
      case action_kind::fail_join:
        fail(one);
        break;
      case action_kind::report:
        report(node_.report_of(one));
        break;
      case action_kind::renumber:
        for (task* each = first_; each != nullptr; each = each->after) {
          if (each->name == one.name) each->epoch -= one.number;
        }
        break;
      case action_kind::drain:
        drain_group(one);
        break;
      case action_kind::close:
        if (one.detail != protocol::none) {
          if (!fault_) fault_ = *node_.verdict_of(one);
          faulted_ = closed_by_fault_ = keeps_ = true;
          close_by_fault();
        }
        break;
    }
  }
  node_.clear_actions();
  plane_.traced = timeline_->active();
  if (faulted_) close_by_fault();  // what is elected after it is not started here
  plane_.run();
  for (const auto& group : groups_) {
    if (group->plane_.waiting() != 0) group->plane_.run();
  }
}

template <class Any>
std::unique_ptr<neutral_task> negotiation<Any>::make_neutral(const protocol::signature& sig) {
  auto one = std::make_unique<neutral_task>(sig);
  const std::size_t count = static_cast<std::size_t>(sig.dimensions.elements());
  tensor& only = one->first;
  only.kernels = sig.element == 255 ? &kernels_of<std::byte> : kernels_for(sig.element);
  only.count = sig.element == 255 ? count * sig.element_size : count;
  if (sig.kind == op_kind::barrier) only = tensor{};
  if (protocol::is_sized(sig.kind)) {
    one->row_bytes = count * sig.element_size;
    one->make_result = &neutral_task::own_result;
    only.count = 0;
    return one;
  }
  if (!sig.members.empty()) {
    const auto members = parse_members(sig.members);
    if (!members) {
      throw protocol::protocol_error(protocol::fault::malformed,
                                     "a bundle of '" + sig.members + "'");
    }
    one->others.resize(members->size() - 1);
    for (std::size_t i = 0; i < members->size(); ++i) {
      tensor& each = i == 0 ? only : one->others[i - 1];
      each.kernels = kernels_for((*members)[i].element);
      each.count = static_cast<std::size_t>((*members)[i].count);
    }
  }
  // reduce_scatter has its result behind its input.
  const std::size_t parts = sig.kind == op_kind::reduce_scatter ? 2 : 1;
  const auto room_of = [](const tensor& what) { return (what.bytes() + 63) / 64 * 64; };
  std::size_t room = 64;
  for (std::size_t i = 0; i < one->tensors(); ++i) {
    if ((*one)[i].kernels != nullptr) room += parts * room_of((*one)[i]);
  }
  one->memory.resize(room);
  std::byte* at = one->memory.data();
  for (std::size_t i = 0; i < one->tensors(); ++i) {
    tensor& each = i == 0 ? only : one->others[i - 1];
    if (each.kernels == nullptr) continue;
    each.in = at;
    each.out = parts == 2 ? at + room_of(each) : at;
    if (each.kernels->operation != nullptr) each.operation = each.kernels->operation(one->code);
    if (each.kernels->fill != nullptr) each.kernels->fill(at, each.count, one->code);
    at += parts * room_of(each);
  }
  if (sig.kind == op_kind::reduce_scatter) {
    const auto rows = sig.dimensions.size() == 0 ? std::int64_t{1} : sig.dimensions[0];
    const auto row = rows == 0 ? std::int64_t{0} : static_cast<std::int64_t>(count) / rows;
    for (int rank = 0; rank < size_; ++rank) {
      one->sizes.push_back((rows / size_ + (rank < rows % size_ ? 1 : 0)) * row);
    }
  }
  return one;
}

// What is to be started is in a pack or not marked as started, whatever lacks memory here: so
// somebody ends it.
template <class Any>
void negotiation<Any>::start(const protocol::action& one) {
  if (node_.name(one.name).listed) {
    return listed_elected(*reinterpret_cast<task*>(one.token), one.log_count);
  }
  task* own = task_of(one.token);
  const protocol::entry_record& entry = node_.entry(one.entry);
  std::unique_ptr<neutral_task> neutral;
  if (own == nullptr) neutral = make_neutral(entry.sig);
  if (pack_ == nullptr) {
    pack_ = &plane_.make();
    pack_->log_count = one.log_count;
    pack_->elected = now();
  }
  task* const what = own == nullptr ? neutral.get() : own;
  pack_->tasks.push_back(what);
  static_cast<void>(neutral.release());
  if (own != nullptr) {
    own->started = true;
    if (own->linked) {  // else nobody asks for its name
      own->holds_name = true;
      node_.hold(own->name);
    }
  }
  what->contributors = one.count;
  if (protocol::is_sized(entry.sig.kind)) {
    pack_->known = one.known;
    if (one.known) {
      pack_->rows = sizes_.at(one.entry);
    } else {
      ++statistics_.size_exchanges;
      pack_->rows = std::make_shared<size_vector>();
      pack_->rows->log_count = one.log_count;
      if (protocol::is_cached(entry.sig)) sizes_[one.entry] = pack_->rows;
    }
  }
  if (!one.last) return;
  if (pack_->tasks.size() > 1) {
    ++statistics_.packs;
    statistics_.packed += pack_->tasks.size();
  }
  plane_.push(*pack_);
  pack_ = nullptr;
}

template <class Any>
void negotiation<Any>::start_join(const protocol::action& one) {
  pack_ = &plane_.make();
  pack_->is_join = true;
  pack_->log_count = one.log_count;
  pack_->newest = one.count;
  pack_->elected = now();
  std::unique_ptr<neutral_task> neutral;
  if (joining_ == nullptr) neutral = std::make_unique<neutral_task>(protocol::signature());
  pack_->tasks.push_back(joining_ == nullptr ? neutral.get() : joining_);
  static_cast<void>(neutral.release());
  if (joining_ != nullptr) std::exchange(joining_, nullptr)->started = true;
  plane_.push(*pack_);
  pack_ = nullptr;
}

template <class Any>
void negotiation<Any>::fail(const protocol::action& one) {
  const bool is_join = one.kind == protocol::action_kind::fail_join;
  auto* own = is_join ? std::exchange(joining_, nullptr) : task_of(one.token);
  if (own == nullptr) return;
  const protocol::verdict& why = *node_.verdict_of(one);
  const std::string_view name =
      is_join ? std::string_view("join") : std::string_view(node_.name(one.name).text);
  const std::string_view verb = is_join ? "join" : protocol::name_of(own->kind);
  if (timeline_->active()) trace_failure(*own, name);
  own->fail(error_of(name, verb, why, one));
  complete(*own);
}

template <class Any>
std::exception_ptr negotiation<Any>::error_of(std::string_view name, std::string_view verb,
                                              const protocol::verdict& why,
                                              const protocol::action& at) const {
  using protocol::failure_kind;
  std::string text =
      "rank " + std::to_string(rank_) + ": " + std::string(verb) + " " + describe(name, why);
  stall_facts facts{why.ready.list(), why.missing.list(), why.silent.list(), why.unknown.list()};
  switch (why.kind) {
    case failure_kind::mismatch: {
      std::vector<std::string> fields;
      std::vector<mismatch_error::side> sides;
      for (const protocol::side& each : why.sides) {
        sides.push_back({each.ranks.list(), {}, each.site.str()});
      }
      for (const protocol::difference& one : protocol::differences(why.sides)) {
        fields.push_back(one.field);
        for (std::size_t i = 0; i < sides.size(); ++i) sides[i].values.push_back(one.values[i]);
      }
      if (fields.empty()) fields.emplace_back("signature");
      return std::make_exception_ptr(mismatch_error(std::move(fields), std::move(sides), text));
    }
    case failure_kind::withdrawn:
      if (at.withdrew) {
        using protocol::withdrawal_reason;
        if (why.rank != rank_) text += "; this rank withdrew it too";
        switch (at.own_reason) {
          case withdrawal_reason::cancelled:
            return std::make_exception_ptr(std::system_error(asio::error::operation_aborted, text));
          case withdrawal_reason::duplicate:
            return std::make_exception_ptr(error(errc::duplicate_name, text));
          case withdrawal_reason::invalid:
            return std::make_exception_ptr(error(errc::invalid_argument, text));
          case withdrawal_reason::deadline:
          case withdrawal_reason::no_decision:
            return std::make_exception_ptr(deadline_error(std::move(facts), text));
        }
      }
      return std::make_exception_ptr(withdrawn_error(
          why.rank, std::string(protocol::name_of(why.reason)), std::move(facts), text));
    case failure_kind::joined:
      return std::make_exception_ptr(joined_error(why.ranks.list(), text));
    case failure_kind::peer_lost:
      return std::make_exception_ptr(peer_lost_error(why.ranks.list(), text));
    case failure_kind::data:
      return std::make_exception_ptr(data_error({why.rank}, text));
  }
  return std::make_exception_ptr(error(errc::data_operation_failed, text));
}

// After a fault what is elected and has not started here will never run, and what has goes on with
// the parts that are posted. What was being filled in when memory ran out may have no task yet.
template <class Any>
void negotiation<Any>::close_by_fault() {
  if (pack_ != nullptr) {
    end_by_fault(*pack_, false);
    plane_.recycle(*std::exchange(pack_, nullptr));
  }
  const auto drop = [this](execution& one) { end_by_fault(one, false); };
  plane_.drop_waiting(drop);
  if (!broken_) plane_.post_no_more(errc::data_operation_failed);
  for (const auto& group : groups_) {
    group->plane_.drop_waiting(drop);
    if (!broken_) group->plane_.post_no_more(errc::data_operation_failed);
    for (const auto& [held, number] : std::exchange(group->held_, {})) {
      held->fail(fault_of(*held));  // nobody will say which starts are good
      complete(*held);
    }
  }
}

/// What a task ends with after a fault, or after this instance has broken down.
template <class Any>
std::exception_ptr negotiation<Any>::fault_of(const task& one) const {
  if (broken_) return broken_;
  if (one.name == protocol::none) return error_of("join", "join", *fault_, protocol::action{});
  return error_of(node_.name(one.name).text, protocol::name_of(one.kind), *fault_,
                  protocol::action{});
}

/// The memory of what nobody awaits stays where MPI still works on it.
template <class Any>
void negotiation<Any>::end_by_fault(execution& what, bool given_up) {
  for (task* each : what.tasks) {
    if (each->linked) {
      each->fail(fault_of(*each));
      complete(*each);
    } else if (!given_up) {
      each->destroy();
    }
  }
}

template <class Any>
std::size_t negotiation<Any>::under_way() const noexcept {
  std::size_t all = plane_.under_way();
  for (const auto& group : groups_) all += group->plane_.under_way();
  return all;
}

// A collective that a rank has not joined never ends, and MPI cannot be told to forget it.
template <class Any>
void negotiation<Any>::give_up_data(bool all) {
  const std::size_t before = under_way();
  const auto end = [this](execution& one) { end_by_fault(one, true); };
  plane_.give_up(all, end);
  for (const auto& group : groups_) group->plane_.give_up(all, end);
  if (under_way() == before) return;
  keeps_ = true;
  touch();
  check_released();
}

/// All ranks have closed after a fault, so none starts anything any more.
template <class Any>
void negotiation<Any>::settle() {
  if (settled_) return;
  settled_ = true;
  for (std::size_t child = edges_.size() - node_.shape().children().size(); child < edges_.size();
       ++child) {
    edges_[child].settles = true;
  }
  try {
    flush();
  } catch (...) {
    break_down(std::current_exception());
  }
}

template <class Any>
void negotiation<Any>::data_done(execution& what) noexcept {
  const bool traced = timeline_->active();
  const auto end = now();
  if (traced) {
    const std::string_view verb =
        what.is_join ? "join" : protocol::name_of(what.tasks.front()->kind);
    for (const execution::span& one : what.spans()) {
      timeline_->span(one.what, verb, 0, set_, what.log_count, one.begin, one.end, one.bytes);
    }
    timeline_->data(verb, set_, what.log_count, what.tasks.size(), what.bytes(), what.begun, end,
                    "mpi");
  }
  for (task* each : what.tasks) {
    if (what.is_join) each->number = what.newest_rank(size_);
    if (!each->linked) {
      each->destroy();
      continue;
    }
    if (protocol::is_persistent(each->kind) && !what.is_join) group_elected(*each);
    if (traced) {
      const std::string_view name =
          what.is_join ? std::string_view("join") : std::string_view(node_.name(each->name).text);
      const auto epoch = static_cast<std::uint64_t>(each->epoch);
      timeline_->span(phase::negotiate, name, epoch, set_, what.log_count, each->submitted,
                      what.elected);
      timeline_->span(phase::queue, name, epoch, set_, what.log_count, what.elected, what.begun);
    }
    complete(*each);
  }
  if (node_.shape().is_root()) done_ += what.tasks.size();
  if (done_ != 0 || left_ || broken_ || plane_.waiting() != 0 || !adding_.empty()) touch();
}

template <class Any>
void negotiation<Any>::trace_failure(const task& one, std::string_view name) {
  timeline_->span(phase::negotiate, name, static_cast<std::uint64_t>(one.epoch), set_, 0,
                  one.submitted, now());
}

// The others must not wait for what MPI still has here, for that may need a part of theirs.
template <class Any>
void negotiation<Any>::data_broke(execution& what, std::error_code why) noexcept {
  if (faulted_ || broken_) return;
  const std::string_view verb = what.is_join ? "join" : protocol::name_of(what.tasks.front()->kind);
  const std::string cause =
      std::string(verb) + " #" + std::to_string(what.log_count) + ": " + why.message();
  const std::string text = "rank " + std::to_string(rank_) + ": " + cause;
  log::write(log::level::error, text);
  for (task* each : what.tasks) {
    if (each->linked) each->fail(std::make_exception_ptr(data_error({rank_}, text)));
  }
  fault_.emplace();
  fault_->kind = protocol::failure_kind::data;
  fault_->rank = rank_;
  fault_->text = cause;
  node_.data_failed(cause);
  faulted_ = true;
  close_by_fault();
  touch();
}

template <class Any>
void negotiation<Any>::data_failed(execution& what, std::error_code why) noexcept {
  data_broke(what, why);
  end_by_fault(what, false);
}

// ---- tasks -------------------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::link(task& one) noexcept {
  one.before = last_;
  one.after = nullptr;
  (last_ == nullptr ? first_ : last_->after) = &one;
  last_ = &one;
  one.linked = true;
}

template <class Any>
void negotiation<Any>::complete(task& one) noexcept {
  if (one.linked) {
    (one.before == nullptr ? first_ : one.before->after) = one.after;
    (one.after == nullptr ? last_ : one.after->before) = one.before;
    one.linked = false;
    if (one.holds_name) node_.let_go(one.name);
    if (one.deadline != clock::time_point::max()) --deadlines_;
    if (options_.strict && one.name != protocol::none) {
      if (const auto used = in_use_.find(one.name); used != in_use_.end()) {
        if (--used->second == 0) in_use_.erase(used);
      }
    }
  }
  ++(one.error ? statistics_.failed : statistics_.completed);
  ++completed_;
  if (first_ == nullptr) stay_awake();
  engine_.complete(&one);
}

template <class Any>
std::exception_ptr negotiation<Any>::refusal(std::string_view name) const {
  return std::make_exception_ptr(error(
      errc::not_accepting, "rank " + std::to_string(rank_) + ": '" + std::string(name) + "'"));
}

template <class Any>
void negotiation<Any>::submit(task& one, std::string_view name, const protocol::signature& sig,
                              const std::source_location& site, std::chrono::nanoseconds deadline) {
  {
    const comm::request_source::guard hold(source_);
    ++statistics_.submitted;
    errc bad = source_.usable();
    if (bad == errc{} && engine_.stopped()) bad = errc::engine_stopped;
    if (bad != errc{}) {
      one.fail(std::make_exception_ptr(error(bad, "'" + std::string(name) + "'")));
    } else if (broken_) {
      one.fail(broken_);
    } else if (name.size() > longest_name || (!name.empty() && name.front() == '\x01')) {
      one.fail(std::make_exception_ptr(
          error(errc::invalid_argument,
                name.size() > longest_name
                    ? "a name of " + std::to_string(name.size()) + " bytes, more than 65535"
                    : std::string("a reserved name"))));
    } else {
      site_.file.assign(site.file_name());
      site_.line = site.line();
      const auto result =
          node_.submit(0, name, sig, reinterpret_cast<std::uint64_t>(&one), one.sizes, &site_);
      one.name = result.name;
      one.epoch = result.number;
      if (result.status == protocol::submission_status::pending) {
        one.operation_ref = result.operation;
        one.submitted = now();
        link(one);
        if (deadline > std::chrono::nanoseconds::zero()) {
          one.deadline = clock::now() + deadline;
          ++deadlines_;
        }
        const bool duplicate = options_.strict && !name.empty() && ++in_use_[one.name] > 1;
        if (one.error) {
          node_.withdraw(one.operation_ref, protocol::withdrawal_reason::invalid);
        } else if (duplicate) {
          node_.withdraw(one.operation_ref, protocol::withdrawal_reason::duplicate);
        }
        if (!ready_) return;
        source_.at_next_look(*this);
        stay_awake();
        unsent_ += sig.bytes();
      } else if (result.status == protocol::submission_status::failed) {
        one.fail(error_of(name, protocol::name_of(sig.kind), *result.why, protocol::action{}));
        complete(one);
        return;
      } else {
        one.fail(refusal(name));
        complete(one);
        return;
      }
    }
    if (!one.linked) {
      complete(one);
      return;
    }
    // What fills a pack is told at once: of a burst the beginning moves while the rest is named.
    if (unsent_ >= options_.fusion_buffer) at_look();
  }
  engine_.started();
}

template <class Any>
void negotiation<Any>::join(task& one) {
  {
    const comm::request_source::guard hold(source_);
    ++statistics_.submitted;
    if (broken_) {
      one.fail(broken_);
      return complete(one);
    }
    const auto result = node_.join(0, 1);
    if (result.status == protocol::submission_status::pending) {
      joining_ = &one;
      one.submitted = now();
      link(one);
      if (ready_) source_.at_next_look(*this);
    } else if (result.status == protocol::submission_status::failed) {
      one.fail(error_of("join", "join", *result.why, protocol::action{}));
      return complete(one);
    } else {
      one.fail(refusal("join"));
      return complete(one);
    }
    stay_awake();
  }
  engine_.started();
}

template <class Any>
void negotiation<Any>::stop_joining(task& one) {
  const comm::request_source::guard hold(source_);
  if (joining_ != &one) return;
  joining_ = nullptr;
  one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  complete(one);
  stay_awake();
}

template <class Any>
bool negotiation<Any>::withdraw(task& one, protocol::withdrawal_reason reason) {
  {
    const comm::request_source::guard hold(source_);
    if (!one.linked || one.started || broken_) return false;
    if (!node_.withdraw(one.operation_ref, reason, nanoseconds(clock::now()))) return false;
    one.withdrawn = true;
    if (!ready_) {
      // Nobody has heard of it, so it is certain how it ends: it need not wait for that.
      if (node_.shape().is_root()) {
        perform();
      } else if (reason == protocol::withdrawal_reason::cancelled) {
        node_.hand_over(one.operation_ref, nobody);
        one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
        complete(one);
      }
      return true;
    }
    source_.at_next_look(*this);
    stay_awake();
  }
  engine_.started();
  return true;
}

template <class Any>
void negotiation<Any>::fail_all(const std::exception_ptr& why) {
  for (task* each = first_; each != nullptr;) {
    task* const next = each->after;
    if (!each->started) {
      each->fail(why);
      complete(*each);
    }
    each = next;
  }
}

/// Nothing can be negotiated here any more.
template <class Any>
void negotiation<Any>::break_down(const std::exception_ptr& why) {
  const comm::request_source::guard hold(source_);
  if (broken_) return;
  broken_ = why;
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& problem) {
    log::write(log::level::error, problem.what());
  } catch (...) {
  }
  fail_all(why);
  joining_ = nullptr;
  adding_.clear();
  for (task* each : std::exchange(making_, {})) {
    each->fail(why);
    complete(*each);
  }
  close_by_fault();
  timeline_->instant("fault", now());
  if (ready_) {
    keeps_ = true;  // others may still send to this rank
    try {
      tell_broken();
    } catch (...) {  // no memory: they find out by themselves
    }
  }
  releasing_ = true;
  for (const edge& one : edges_) {
    if (one.receive == nullptr) continue;
    source_.set_idle(*one.receive, false);
    source_.cancel(*one.receive);
  }
  check_released();
}

// ---- persistent groups -------------------------------------------------------------------------

template <class Any>
std::shared_ptr<group_state> negotiation<Any>::add_group(task& one, std::string_view name,
                                                         protocol::signature sig,
                                                         const std::source_location& site) {
  auto group = std::make_shared<persistent_state>(*this, options_);
  group->sig_ = sig;
  group->text_ = name;
  for (std::size_t i = 0; i < one.tensors(); ++i) group->members_.push_back(one[i]);
  // A creation moves no data: the collective is the making of the communicator.
  one.kind = sig.kind = op_kind::group_create;
  one.context = group.get();
  one.made = &group->made;
  {
    const comm::request_source::guard hold(source_);
    groups_.push_back(group);
  }
  submit(one, name, sig, site, std::chrono::nanoseconds::zero());
  return group;
}

/// Its communicator is there.
template <class Any>
void negotiation<Any>::group_elected(task& own) {
  auto& group = *static_cast<persistent_state*>(own.context);
  if (own.kind == op_kind::group_remove) {
    group.removed_ = true;
    return;
  }
  try {
    group.comm_ = mpi::comm::adopt(group.made);
  } catch (...) {
    own.fail(std::current_exception());
    return;
  }
  group.name_ = own.name;
  group.plane_.open(*control_.state(), rank_, size_, group.comm_.native(),
                    std::vector<MPI_Comm>{group.comm_.native()}, nullptr);
}

template <class Any>
void negotiation<Any>::start_group(task& one, group_state& which) {
  auto& group = static_cast<persistent_state&>(which);
  {
    const comm::request_source::guard hold(source_);
    ++statistics_.submitted;
    std::optional<std::uint64_t> number;
    // After a fault here its collective would be taken for the one that has failed.
    if (!broken_ && !faulted_ && group.name_ != protocol::none && !group.removed_) {
      number = node_.start_group(group.name_);
    }
    if (!number) {
      if (broken_) {
        one.fail(broken_);
      } else if (faulted_) {
        one.fail(error_of(group.text_, protocol::name_of(group.sig_.kind), *fault_, {}));
      } else {
        one.fail(refusal(group.text_));
      }
      return complete(one);
    }
    const protocol::signature& sig = group.sig_;
    one.kind = sig.kind;
    one.flags = sig.flags;
    one.code = static_cast<reduction_code>(sig.reduction);
    one.prescale = sig.prescale;
    one.postscale = sig.postscale;
    one.first = group.members_.front();
    one.others.assign(group.members_.begin() + 1, group.members_.end());
    one.name = group.name_;
    one.epoch = static_cast<protocol::epoch>(*number);
    one.started = true;
    one.submitted = now();
    link(one);
    group.push(one, *number);
  }
  engine_.started();
}

template <class Any>
void negotiation<Any>::persistent_state::push(task& one, std::uint64_t number) {
  one.contributors = static_cast<std::uint64_t>(owner_.size_);
  execution& what = plane_.make();
  what.log_count = number;
  what.elected = owner_.now();
  what.tasks.push_back(&one);
  plane_.push(what);
  plane_.run();
}

template <class Any>
void negotiation<Any>::remove_group(task& one, group_state& which,
                                    const std::source_location& site) {
  auto& group = static_cast<persistent_state&>(which);
  protocol::signature sig = group.sig_;
  {
    const comm::request_source::guard hold(source_);
    if (group.name_ == protocol::none || group.removed_) {
      one.fail(refusal(group.text_));
      return complete(one);
    }
    sig.detail = node_.group_starts(0, group.text_);  // [H5]
  }
  one.kind = sig.kind = op_kind::group_remove;
  one.context = &group;
  submit(one, group.text_, sig, site, std::chrono::nanoseconds::zero());
}

// [H4] Each rank makes up the starts that others have made, which completes these inside MPI.
template <class Any>
void negotiation<Any>::drain_group(const protocol::action& one) {
  if (faulted_) return;
  for (const auto& group : groups_) {
    if (group->name_ != one.name) continue;
    group->good_ = one.count;
    for (auto number = static_cast<std::uint64_t>(one.number); number < one.log_count; ++number) {
      group->push(*make_neutral(group->sig_).release(), number);
    }
    for (const auto& [held, number] : std::exchange(group->held_, {})) {
      group->end(*held, number);
    }
  }
}

template <class Any>
void negotiation<Any>::persistent_state::end(task& one, std::uint64_t number) noexcept {
  if (number >= good_) {
    one.fail(std::make_exception_ptr(
        peer_lost_error(owner_.node_.log().departed.list(),
                        "rank " + std::to_string(owner_.rank_) + ": persistent group '" + text_ +
                            "' start " + std::to_string(number) + ": a rank has left without it")));
  }
  owner_.complete(one);
}

template <class Any>
void negotiation<Any>::persistent_state::data_done(execution& what) noexcept {
  for (task* each : what.tasks) {
    if (!each->linked) {
      each->destroy();
    } else if (owner_.node_.holds_group_completions()) {
      if (!owner_.faulted_) {
        held_.emplace_back(each, what.log_count);
        continue;
      }
      each->fail(owner_.fault_of(*each));  // nobody will say whether it is good
      owner_.complete(*each);
    } else {
      end(*each, what.log_count);
    }
  }
  owner_.touch();
}

template <class Any>
void negotiation<Any>::persistent_state::data_broke(execution& what, std::error_code why) noexcept {
  owner_.data_broke(what, why);
}

template <class Any>
void negotiation<Any>::persistent_state::data_failed(execution& what,
                                                     std::error_code why) noexcept {
  owner_.data_failed(what, why);
}

// ---- process sets ------------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::add_set(task& one) {
  const auto& record = *static_cast<creation*>(one.context);
  {
    const comm::request_source::guard hold(source_);
    ++statistics_.submitted;
    protocol::rank_set listed;
    for (const int rank : record.members) listed.insert(rank);
    if (broken_) {
      one.fail(broken_);
      return complete(one);
    }
    if (listed.empty() || listed.back() >= size_) {
      one.fail(std::make_exception_ptr(error(
          errc::bad_rank,
          "add_process_set: ranks " + record.members.str() + " of " + std::to_string(size_))));
      return complete(one);
    }
    if (!listed.contains(rank_)) return complete(one);
    protocol::signature sig;
    sig.kind = op_kind::barrier;
    sig.flags = protocol::signature_flag::alone;
    sig.members = record.members.str();  // in the order given: it decides who is which rank
    one.kind = op_kind::barrier;
    const bool confirms = record.id != 0;
    const std::string name = protocol::listed_name(
        listed, confirms ? "make " + std::to_string(record.id) : std::string("add"));
    const auto result = node_.submit(0, name, sig, reinterpret_cast<std::uint64_t>(&one));
    if (result.status == protocol::submission_status::refused) {
      one.fail(refusal("add_process_set"));
      return complete(one);
    }
    if (result.status == protocol::submission_status::failed) {
      one.fail(error_of("add_process_set", "add_process_set", *result.why, protocol::action{}));
      return complete(one);
    }
    one.name = result.name;
    one.epoch = result.number;
    one.operation_ref = result.operation;
    if (!confirms) {
      one.submitted = now();
      link(one);
    }
    if (!ready_) return;
    source_.at_next_look(*this);
    stay_awake();
  }
  engine_.started();
}

/// All listed members have asked for it; or have said that what came before is complete.
template <class Any>
void negotiation<Any>::listed_elected(task& own, std::uint64_t log_count) {
  auto& record = *static_cast<creation*>(own.context);
  if (node_.shape().is_root()) {
    ++done_;
    touch();
  }
  if (record.id == 0) {
    record.id = log_count;
    adding_.push_back(&own);
  } else {
    own.started = true;
    making_.push_back(&own);
  }
}

template <class Any>
void negotiation<Any>::confirm_sets() {
  for (std::size_t i = 0; i < adding_.size();) {
    task& one = *adding_[i];
    if (!plane_.complete_before(static_cast<creation*>(one.context)->id)) {
      ++i;
      continue;
    }
    adding_.erase(adding_.begin() + static_cast<std::ptrdiff_t>(i));
    add_set(one);
  }
}

// MPI_Comm_create_group blocks until all members are in it. They are on their way, for each has the
// decision or will get it; so what this rank has to pass on must have left before.
template <class Any>
void negotiation<Any>::make_sets() {
  for (const edge& each : edges_) {
    if (each.sending || node_.has_message(each.rank)) return;
  }
  for (task* one : std::exchange(making_, {})) {
    try {
      make_set(*static_cast<creation*>(one->context));
    } catch (...) {
      one->fail(std::current_exception());
    }
    complete(*one);
  }
}

template <class Any>
void negotiation<Any>::make_set(creation& one) {
  // Not over the communicator of the control messages: Open MPI sends its own with the tag given
  // here, and a posted control receive would take them.
  const mpi::comm_ref over(slots_.native());
  mpi::comm data =
      over.create(over.group().include(one.members), 1 + static_cast<int>(one.id % 32767));
  mpi::comm exchange = data.dup();
  mpi::comm slot = data.dup();
  mpi::comm other_slot = data.dup();
  communicator control = communicator::adopt(control_, std::move(data), std::move(exchange));
  communicator slots = communicator::adopt(control_, std::move(slot), std::move(other_slot));
  coordinator_options options = options_;
  options.timeline.clear();
  options.frozen_plan.clear();
  auto made = std::make_shared<negotiation>(control, options, nullptr);
  made->members_ = one.members;
  made->timeline_ = timeline_;
  made->set_ = static_cast<std::uint32_t>(one.id);
  asio::use_service<registry>(engine_.context()).add(made);
  source_.watch(*made);
  one.made = std::make_shared<instance_handle>(made);
  made->control_ = std::move(control);
  made->slots_made(std::move(slots));
}

// ---- life --------------------------------------------------------------------------------------

/// With the guard held.
template <class Any>
void negotiation<Any>::touch() {
  if (!ready_ || closed_) return;
  source_.at_next_look(*this);
  engine_.started();
}

/// While this rank waits for others its engine looks for their messages; otherwise it may sleep
/// until the doorbell rings.
template <class Any>
void negotiation<Any>::stay_awake() {
  if (edges_.empty()) {  // alone: what waits, waits for a plan
    if (node_.pending() != 0) source_.at_next_look(*this);
    return;
  }
  if (edges_.front().receive == nullptr) return;
  const bool waits = first_ != nullptr || (left_ && !leave_expired_) ||
                     node_.deadline().has_value() || (closed_by_fault_ && !settled_);
  source_.set_idle(*edges_.front().receive, !waits);
}

template <class Any>
std::size_t negotiation<Any>::at_look() {
  if (broken_) check_released();
  if (!ready_ || broken_) return 0;
  const std::size_t before = completed_;
  try {
    advance();
  } catch (...) {
    break_down(std::current_exception());
    return completed_ - before;
  }
  stay_awake();
  check_released();
  return completed_ - before;
}

template <class Any>
void negotiation<Any>::at_tick(clock::time_point at) {
  if (closed_) return;
  timeline_->flush();
  if (left_ && at > leave_until_ && !leave_expired_) leave_has_expired();
  watch_fault(at);
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    if (edges_[i].sending) wake_receiver(i);
  }
  if (!ready_ || broken_ || closed_) return;
  try {
    if (const auto due = node_.deadline(); due && *due <= nanoseconds(at)) {
      node_.expire(nanoseconds(at));
      touch();
    }
    if (deadlines_ != 0) {
      for (task* each = first_; each != nullptr; each = each->after) {
        if (each->withdrawn || each->started || each->deadline > at) continue;
        each->withdrawn = true;
        if (node_.withdraw(each->operation_ref, protocol::withdrawal_reason::deadline,
                           nanoseconds(at))) {
          touch();
        }
      }
    }
  } catch (...) {
    return break_down(std::current_exception());
  }
  watch_undecided(at);
  watch_plan(at);
  if (options_.stall_warning > std::chrono::nanoseconds::zero() && first_ != nullptr &&
      !first_->started && at - first_->submitted > options_.stall_warning &&
      at - warned_ > options_.stall_warning) {
    warned_ = at;
    if (node_.request_report(nanoseconds(at))) touch();
  }
}

// Nobody decides, because a rank between here and the root is stopped or computes. Only time in
// which this rank looked for messages counts: after a long handler they may be there already. [W4]
template <class Any>
void negotiation<Any>::watch_undecided(clock::time_point at) {
  const auto step = std::min<std::chrono::nanoseconds>(at - std::exchange(last_tick_, at),
                                                       std::chrono::milliseconds(100));
  if (node_.shape().is_root()) return;
  std::chrono::nanoseconds longest{0};
  for (task* each = first_; each != nullptr; each = each->after) {
    if (!each->withdrawn || each->started) continue;
    each->undecided += step;
    longest = std::max(longest, each->undecided);
  }
  if (longest > options_.decision_timeout / 2 && pinged_ + options_.decision_timeout < at) {
    pinged_ = at;
    edges_.front().asks = true;
    touch();
  }
  if (longest > options_.decision_timeout) give_up();
}

// What others have posted and the rank that failed has not, never ends. Its awaiters end here: at
// once, where MPI works on memory of the library; where it may write to that of callers, when no
// rank can start its part any more and what was on its way has had time to arrive. If some rank
// does not even close, a late message of it could be written to memory that is gone, and the job
// ends.
template <class Any>
void negotiation<Any>::watch_fault(clock::time_point at) {
  if ((!faulted_ && !broken_) || closed_ || under_way() == 0) return;
  if (fault_until_ == clock::time_point::max()) fault_until_ = at + engine_.drain_bound();
  if (settled_) settled_at_ = std::min(settled_at_, at);
  const bool settled = settled_ && at - settled_at_ >= settling_time;
  if (faulted_ || at >= fault_until_) give_up_data(settled);
  if (under_way() == 0 || at < fault_until_) return;
  std::string text =
      "coordinator: a data operation has failed on some rank, not all ranks have closed since, and "
      "these did not end:";
  const auto name = [&](const execution& one) {
    for (const task* each : one.tasks) {
      text += "\n  " + std::string(protocol::name_of(each->kind)) + " #" +
              std::to_string(one.log_count);
      if (each->name != protocol::none) text += " '" + node_.name(each->name).text + "'";
    }
  };
  plane_.for_each_under_way(name);
  for (const auto& group : groups_) group->plane_.for_each_under_way(name);
  process::end_job(text);
}

// A pack of the frozen plan that has waited for too long goes without its missing members, and the
// plan is over: sums are no longer the same from run to run. [R4]
template <class Any>
void negotiation<Any>::watch_plan(clock::time_point at) {
  if (options_.plan_patience <= std::chrono::nanoseconds::zero() || options_.frozen_plan.empty() ||
      !node_.shape().is_root()) {
    return;
  }
  const std::vector<std::string> awaited = node_.plan_awaits();
  if (awaited.empty()) {
    plan_waits_since_ = clock::time_point::max();
    return;
  }
  plan_waits_since_ = std::min(plan_waits_since_, at);
  if (at - plan_waits_since_ < options_.plan_patience) return;
  std::string text = "rank 0: coordinator: the frozen plan is given up; it waits for";
  for (const std::string& name : awaited) text += " '" + name + "'";
  log::write(log::level::warning, text);
  if (node_.give_up_plan()) touch();
}

template <class Any>
void negotiation<Any>::give_up() {
  const int parent = node_.shape().parent();
  const std::string text =
      ": no decision within " +
      std::to_string(
          std::chrono::duration_cast<std::chrono::milliseconds>(options_.decision_timeout)
              .count()) +
      " ms; rank " + std::to_string(parent) +
      (answered_ >= pinged_
           ? ", this rank's parent, answers, so it is a rank beyond it that does not"
           : ", this rank's parent, does not answer");
  stall_facts facts;
  if (answered_ < pinged_) facts.silent.push_back(parent);
  // What is elected all the same needs this rank's data, and the buffers are the caller's.
  for (task* each = first_; each != nullptr;) {
    task* const next = each->after;
    if (!each->started && each->name != protocol::none) {
      try {
        node_.replace_token(each->operation_ref,
                            reinterpret_cast<std::uint64_t>(stand_in_for(*each)));
      } catch (...) {
        return break_down(std::current_exception());
      }
      each->fail(std::make_exception_ptr(
          deadline_error(facts, "rank " + std::to_string(rank_) + ": " +
                                    std::string(protocol::name_of(each->kind)) + " '" +
                                    node_.name(each->name).text + "'" + text)));
      complete(*each);
    }
    each = next;
  }
  log::write(log::level::error,
             "rank " + std::to_string(rank_) + ": coordinator" + text + "; this rank leaves");
  left_ = true;
  leave_until_ = clock::now() + options_.leave_deadline;
  node_.give_up();
  touch();
}

template <class Any>
task* negotiation<Any>::stand_in_for(const task& one) const {
  auto copy = std::make_unique<neutral_task>(protocol::signature());
  copy->kind = one.kind;
  copy->flags = one.flags;
  copy->code = one.code;
  copy->root = one.root;
  copy->prescale = one.prescale;
  copy->postscale = one.postscale;
  copy->first = one.first;
  copy->others = one.others;
  copy->sizes = one.sizes;
  copy->row_bytes = one.row_bytes;
  copy->made = one.made;
  copy->name = one.name;
  copy->epoch = one.epoch;
  if (one.make_result != nullptr) copy->make_result = &neutral_task::own_result;
  // Inputs are copied, and what comes goes behind them.
  const bool is_root = one.root == rank_;
  const bool reads = one.kind != op_kind::scatter || is_root;
  const std::size_t results =
      one.kind == op_kind::gather && is_root ? static_cast<std::size_t>(size_) : 1;
  const auto room_of = [](const tensor& what) {
    return what.kernels == nullptr ? std::size_t{0} : (what.bytes() + 63) / 64 * 64;
  };
  std::size_t room = 64;
  for (std::size_t i = 0; i < one.tensors(); ++i) room += (1 + results) * room_of(one[i]);
  copy->inputs.resize(room);
  std::byte* at = copy->inputs.data();
  for (std::size_t i = 0; i < one.tensors(); ++i) {
    const tensor& from = one[i];
    tensor& to = i == 0 ? copy->first : copy->others[i - 1];
    if (from.kernels == nullptr) continue;
    if (reads && from.bytes() != 0) std::memcpy(at, from.in, from.bytes());
    to.in = at;
    to.out = from.in == from.out ? at : at + room_of(from);
    at += (1 + results) * room_of(from);
  }
  return copy.release();
}

/// The others may still come; this rank goes on serving them while its loop runs. [L6]
template <class Any>
void negotiation<Any>::leave_has_expired() {
  leave_expired_ = true;
  const std::string text = "rank " + std::to_string(rank_) +
                           ": coordinator: the other ranks have not left in time; its "
                           "communicators are kept";
  log::write(log::level::error, text);
  for (task* each : std::exchange(closing_, {})) {
    each->fail(std::make_exception_ptr(error(errc::stalled, text)));
    engine_.complete(each);
  }
  stay_awake();
}

template <class Any>
void negotiation<Any>::leave(protocol::departure how) {
  const comm::request_source::guard hold(source_);
  if (left_) return;
  left_ = true;
  leave_until_ = clock::now() + options_.leave_deadline;
  if (broken_) return;
  try {
    node_.leave(how);
  } catch (...) {
    return break_down(std::current_exception());
  }
  if (!ready_) return;
  stay_awake();
  touch();
}

template <class Any>
void negotiation<Any>::wait_closed(task& one) {
  const comm::request_source::guard hold(source_);
  if (!closed_ && !leave_expired_) {
    closing_.push_back(&one);
    return;
  }
  if (!closed_) {
    one.fail(std::make_exception_ptr(error(
        errc::stalled,
        "rank " + std::to_string(rank_) + ": coordinator: the other ranks have not left in time")));
  }
  engine_.complete(&one);
}

template <class Any>
void negotiation<Any>::stop_waiting(task& one) {
  const comm::request_source::guard hold(source_);
  if (std::erase(closing_, &one) == 0) return;
  one.fail(std::make_exception_ptr(std::system_error(asio::error::operation_aborted)));
  engine_.complete(&one);
}

template <class Any>
void negotiation<Any>::check_released() {
  if (!broken_ && !(ready_ && node_.released())) return;
  if (closed_by_fault_ && !broken_) {
    if (node_.shape().is_root()) settle();
    if (!settled_) return;
  }
  if (plane_.under_way() != 0 || plane_.waiting() != 0) return;
  for (const auto& group : groups_) {
    if (group->plane_.under_way() != 0 || group->plane_.waiting() != 0) return;
  }
  for (const edge& one : edges_) {
    if (one.sending || (one.settles && !broken_)) return;
  }
  if (!releasing_) {
    releasing_ = true;
    for (const edge& one : edges_) {
      if (one.receive != nullptr) {
        source_.set_idle(*one.receive, false);
        source_.cancel(*one.receive);
      }
    }
  }
  if (control_operations_ == 0 && !closed_) finish_closing();
}

template <class Any>
void negotiation<Any>::finish_closing() {
  closed_ = true;
  if (set_ == 0) timeline_->stop();
  source_.forget(*this);
  if (keeps_) {
    leave_to_mpi();
  } else {
    groups_.clear();
  }
  control_ = communicator();
  slots_ = communicator();
  for (task* each : std::exchange(closing_, {})) engine_.complete(each);
}

// MPI may free a communicator under what still goes on there, and freeing is collective: after a
// fault no rank does.
template <class Any>
void negotiation<Any>::leave_to_mpi() {
  left_to_mpi().add(this->shared_from_this());
  for (const communicator& each : {control_, slots_}) {
    if (!each) continue;
    static_cast<void>(each.state()->data.release());
    static_cast<void>(each.state()->exchange.release());
  }
  for (const auto& group : groups_) static_cast<void>(group->comm_.release());
  parent_ = communicator();
}

/// For destructors. Inside the loop the rank leaves in the background.
template <class Any>
void negotiation<Any>::leave_in_place() {
  if (abandoned_) return;
  leave(protocol::departure::drained);
  if (closed_ || !ready_ || engine_.get_executor().running_in_this_thread() ||
      !engine_.context().stopped()) {
    return;
  }
  engine_.drive_until([this] { return closed_; }, engine_.drain_bound());
}

template <class Any>
void negotiation<Any>::abandon() {
  leave(protocol::departure::abandoned);
  abandoned_ = true;
}

template <class Any>
void negotiation<Any>::drive() {
  engine_.drive_until(
      [this] { return closed_; },
      std::min<std::chrono::nanoseconds>(engine_.drain_bound(), options_.leave_deadline));
}

// What dies with one operation, a coroutine say, must not wait for another.
template <class Any>
void negotiation<Any>::settle_tasks() {
  for (task* each = first_; each != nullptr; each = each->after) {
    if (!each->started) each->settle();
  }
}

template <class Any>
void negotiation<Any>::destroy_tasks() {
  for (task* each : std::exchange(closing_, {})) each->destroy();
  for (task* each = first_; each != nullptr;) {
    task* const next = each->after;
    if (!each->started) each->destroy();
    each = next;
  }
}

// ---- reports -----------------------------------------------------------------------------------

template <class Any>
void negotiation<Any>::ask() {
  const comm::request_source::guard hold(source_);
  if (broken_ || !ready_) return;
  if (node_.request_report(nanoseconds(clock::now()))) touch();
}

template <class Any>
void negotiation<Any>::report(const protocol::stall_report& what) {
  last_report_ = what;
  has_report_ = true;
  std::string text;
  for (const pending_operation& one : pending()) {
    if (!one.asked || one.started || one.age < options_.stall_warning) continue;
    const auto list = [](const std::vector<int>& ranks) {
      protocol::rank_set set;
      for (const int rank : ranks) set.insert(rank);
      return ranks.empty() ? std::string("none") : set.str();
    };
    text += "\n  " + one.verb + " '" + one.name + "' " + one.shape + " (" + one.site + "), " +
            std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(one.age).count()) +
            " ms; ready: " + list(one.ready) + "; missing: " + list(one.missing);
    if (!one.unknown.empty()) text += "; unknown: " + list(one.unknown);
  }
  if (text.empty() || options_.stall_warning <= std::chrono::nanoseconds::zero()) return;
  timeline_->instant("stall warning", now());
  log::write(log::level::warning,
             "rank " + std::to_string(rank_) + ": coordinator stalled:" + text);
}

template <class Any>
std::vector<pending_operation> negotiation<Any>::pending() {
  const comm::request_source::guard hold(source_);
  std::vector<pending_operation> all;
  const auto at = clock::now();
  for (const task* each = first_; each != nullptr; each = each->after) {
    pending_operation& one = all.emplace_back();
    one.started = each->started;
    one.age = at - each->submitted;
    if (each->name == protocol::none) {
      one.name = one.verb = "join";
      continue;
    }
    one.name = node_.name(each->name).text;
    one.verb = protocol::name_of(each->kind);
    for (const protocol::stall_report_row& row : last_report_.rows) {
      if (row.name != one.name || row.number != each->epoch || row.ready.empty()) continue;
      one.asked = true;
      protocol::rank_set ready;
      for (const protocol::side& side : row.ready) ready.unite(side.ranks);
      one.shape = row.ready.front().sig.dimensions.str();
      one.site = row.ready.front().site.str();
      one.ready = ready.list();
      one.missing = row.missing.without(ready).list();
      protocol::rank_set unknown = last_report_.silent;
      unknown.unite(last_report_.unknown);
      one.unknown = unknown.list();
    }
  }
  return all;
}

template <class Any>
coordinator_statistics negotiation<Any>::statistics() {
  const comm::request_source::guard hold(source_);
  return statistics_;
}

template <class Any>
void negotiation<Any>::step() {
  const comm::request_source::guard hold(source_);
  timeline_->instant("step", now());
}

template <class Any>
std::error_code negotiation<Any>::start_timeline(const std::string& path) {
  const comm::request_source::guard hold(source_);
  timeline_options recording;
  recording.ring = static_cast<std::size_t>(options_.timeline_ring);
  return timeline_->start(path, recording);
}

template <class Any>
void negotiation<Any>::stop_timeline() {
  const comm::request_source::guard hold(source_);
  timeline_->stop();
}

}  // namespace cohort::coordination
