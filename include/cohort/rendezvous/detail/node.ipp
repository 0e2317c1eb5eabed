// Copyright (c) 2026 The cohort authors
// SPDX-License-Identifier: BSL-1.0
#pragma once

/// \file Bodies of rendezvous/node.hpp.

#include <cohort/rendezvous/node.hpp>

namespace cohort::meeting {

// ---- what is said ------------------------------------------------------------------------------

template <class Any>
void basic_node<Any>::speaks(int to) {
  peer_state& one = peer(to);
  if (!std::exchange(one.speaks, true)) speaking_.push_back(to);
}

template <class Any>
void basic_node<Any>::say(int to, const record& what) {
  if (peer(to).lost || silent_) return;
  wire::writer out(peer(to).out);
  put(out, what);
  speaks(to);
}

/// Tells the source, with the next message, that values have been received.
template <class Any>
void basic_node<Any>::owe(int to, step_id step, std::uint64_t values, std::uint64_t credit) {
  if (peer(to).lost || silent_) return;
  debt& one = peer(to).owes(step);
  one.values += values;
  one.credit += credit;
  speaks(to);
}

template <class Any>
void basic_node<Any>::took(step_state& step, int from, std::uint64_t credit) {
  ++step.links[from].taken;
  owe(from, step.id, 1, credit);
}

template <class Any>
void basic_node<Any>::drop(packet_ptr value) {
  if (value && value->foreign) dropped_.push(std::move(value));
}

template <class Any>
bool basic_node<Any>::has_message(int to) const noexcept {
  const peer_state& one = peers_[static_cast<std::size_t>(to)];
  return !one.out.empty() || !one.owed.empty();
}

template <class Any>
bool basic_node<Any>::take_message(int to, std::vector<std::byte>& out) {
  peer_state& one = peer(to);
  one.speaks = false;
  for (const auto& [step, what] : one.owed) {
    wire::writer writer(one.out);
    record said;
    said.step = step;
    if (what.values != 0) {
      said.kind = record_kind::taken;
      said.size = what.values;
      said.credit = what.credit;
      put(writer, said);
    }
    if (what.over) {
      said.kind = record_kind::over;
      said.why = what.why;
      put(writer, said);
    }
  }
  one.owed.clear();
  if (one.out.empty()) return false;
  out.insert(out.end(), one.out.begin(), one.out.end());
  one.out.clear();
  return true;
}

template <class Any>
void basic_node<Any>::refuse(int to, std::uint64_t id, reason why, const step_state* step) {
  record one;
  one.kind = record_kind::refusal;
  one.id = id;
  one.why = why;
  if (why == reason::aborted && step != nullptr) {
    one.cause = {step->category, step->code, step->text};
  }
  say(to, one);
}

// ---- beginning ---------------------------------------------------------------------------------

template <class Any>
void basic_node<Any>::open(int rank, int size, std::uint64_t incarnation) {
  rank_ = rank;
  size_ = size;
  incarnation_ = incarnation;
  peers_ = std::vector<peer_state>(static_cast<std::size_t>(size));
  for (peer_state& one : peers_) one.credit = options_.credit;
  const auto steps = steps_;  // an abort does not change it, but looks at it
  for (const auto& [id, step] : steps) {
    const auto strange = [&](const rendezvous_key& key, const receiver&) {
      return key.destination != rank_ || key.source < 0 || key.source >= size_;
    };
    step->local.fail_waiting(
        strange, std::make_exception_ptr(error(
                     errc::not_local, "step " + std::to_string(id) +
                                          ": a receive that came before the initialisation is not "
                                          "between ranks of this communicator to rank " +
                                          std::to_string(rank_))));
    for (const waiting_key& one : step->local.list()) {
      if (one.key.view().source != rank_) balance(in_of(*step, hashed(one.key)));
    }
    for (auto& [key, value] : std::exchange(step->deferred, {})) {
      if (step->ended) break;
      try {
        const rendezvous_key whole = key;
        if (whole.source == rank_ && whole.destination == rank_) {
          step->local.send(whole, std::move(value));
        } else {
          send(*step, whole, value);
        }
      } catch (...) {
        abort(*step, std::current_exception());
      }
      drop(std::move(value));
    }
    check_drained(*step);
  }
}

template <class Any>
void basic_node<Any>::know(std::vector<std::uint64_t> incarnations) {
  incarnations_ = std::move(incarnations);
  for (const auto& [id, step] : steps_) {
    const auto stale = [&](const rendezvous_key& key, const receiver& one) {
      const std::uint64_t is = incarnation(key.source);
      return one.incarnation != 0 && is != 0 && one.incarnation != is;
    };
    step->local.fail_waiting(stale, std::make_exception_ptr(error(errc::stale_incarnation,
                                                                  "step " + std::to_string(id))));
    for (auto& [key, channel] : step->in) balance(channel);
  }
}

// ---- steps -------------------------------------------------------------------------------------

template <class Any>
step_ptr basic_node<Any>::find(step_id id) const {
  const auto found = steps_.find(id);
  return found == steps_.end() ? nullptr : found->second;
}

template <class Any>
step_state* basic_node<Any>::look_up(step_id id) const {
  const auto found = steps_.find(id);
  return found == steps_.end() ? nullptr : found->second.get();
}

template <class Any>
step_ptr basic_node<Any>::step(step_id id) {
  if (broken_) std::rethrow_exception(broken_);
  if (cleaned_.contains(id)) {
    throw error(errc::step_cleaned, "step " + std::to_string(id));
  }
  if (closing_) throw error(errc::closed, "step " + std::to_string(id));
  step_ptr& one = steps_[id];
  if (!one) {
    one = std::allocate_shared<step_state>(progress::pool_allocator<step_state>(), id,
                                           options_.single_use);
  }
  return one;
}

template <class Any>
std::vector<step_id> basic_node<Any>::steps() const {
  std::vector<step_id> all;
  for (const auto& [id, step] : steps_) all.push_back(id);
  return all;
}

template <class Any>
template <class Visit>
void basic_node<Any>::for_each_waiting(Visit visit) const {
  for (const auto& [id, one] : steps_) {
    const step_state& step = *one;
    step.local.for_each_waiting(
        [&](const rendezvous_key& key, receiver& each) { visit(step, &key, each); });
    step.drains.for_each([&](receiver& each) { visit(step, nullptr, each); });
  }
}

template <class Any>
std::string basic_node<Any>::text_of(const step_state& step, const rendezvous_key& key) const {
  return "rank " + std::to_string(rank_) + ", step " + std::to_string(step.id) + ", '" +
         to_string(key) + "'";
}

template <class Any>
typename basic_node<Any>::outgoing& basic_node<Any>::out_of(step_state& step,
                                                            const hashed_key& key) {
  const auto at = find_or_make(step.out, key);
  if (at->second.step == nullptr) {
    at->second.step = &step;
    at->second.key = &at->first;
    at->second.to = &step.links[key.key.destination];
  }
  return at->second;
}

template <class Any>
typename basic_node<Any>::incoming& basic_node<Any>::in_of(step_state& step,
                                                           const hashed_key& key) {
  const auto at = find_or_make(step.in, key);
  if (at->second.step == nullptr) {
    at->second.step = &step;
    at->second.key = &at->first;
    at->second.from = &step.links[key.key.source];
  }
  return at->second;
}

// ---- sending -----------------------------------------------------------------------------------

template <class Any>
void basic_node<Any>::send(step_state& step, const rendezvous_key& key, packet_ptr& value) {
  if (step.local.has_ended()) std::rethrow_exception(step.local.ended());
  if (key.source != rank_ || key.destination < 0 || key.destination >= size_) {
    throw error(errc::not_local, text_of(step, key) + ": send");
  }
  outgoing& channel = out_of(step, hashed(key));
  if (options_.single_use && channel.next != 0) {
    throw error(errc::duplicate_key, "'" + to_string(key) + "' has been sent before");
  }
  peer_state& to = peer(key.destination);
  if (to.lost) std::rethrow_exception(lost_error(step, key.destination));
  if (packet_ptr encoded = value->encode()) {
    drop(std::move(value));
    value = std::move(encoded);
  }
  const std::uint64_t number = channel.next++;
  if (channel.to->drops) return;
  ++channel.to->sent;
  if (!channel.to->over) ++step.unreceived;
  if (!step.drains.empty()) watch(step, key.destination, *channel.to);
  for (auto at = channel.requests.begin(); at != channel.requests.end(); ++at) {
    if (at->number != number) continue;
    const std::uint64_t id = at->id;
    channel.requests.erase(at);
    parked_.erase({key.destination, id});
    return answer(step, channel, key.destination, id, number, value);
  }
  const std::size_t size = value->bytes().size();
  const std::uint64_t cost = size + overhead_of_value;
  if (size <= options_.push_limit && cost <= to.credit) {
    to.credit -= cost;
    ++statistics_.pushed;
    record push;
    push.kind = record_kind::push;
    push.step = step.id;
    push.name = key.name;
    push.frame = key.frame;
    push.iteration = key.iteration;
    push.number = number;
    push.type = value->type;
    push.dead = value->dead;
    push.bytes = value->bytes();
    return say(key.destination, push);
  }
  channel.values.push_back({number, std::move(value)});
}

template <class Any>
void basic_node<Any>::answer(step_state& step, outgoing& channel, int to, std::uint64_t id,
                             std::uint64_t number, packet_ptr& value) {
  record one;
  one.id = id;
  one.type = value->type;
  one.dead = value->dead;
  const std::size_t size = value->bytes().size();
  if (size <= options_.inline_limit) {
    ++statistics_.pulled;
    one.kind = record_kind::value;
    one.bytes = value->bytes();
    return say(to, one);
  }
  one.kind = record_kind::offer;
  one.size = size;
  say(to, one);
  offers_[{to, id}] = {step.shared_from_this(), &channel, number, std::move(value)};
}

template <class Any>
void basic_node<Any>::on_request(int from, const record& one) {
  if (!peer(from).seen.insert(one.id)) return;  // it came twice
  if (one.incarnation != 0 && incarnation_ != 0 && one.incarnation != incarnation_) {
    return refuse(from, one.id, reason::stale);
  }
  if (cleaned_.contains(one.step)) return refuse(from, one.id, reason::cleaned);
  step_state* step = look_up(one.step);
  if (closing_ && step == nullptr) return refuse(from, one.id, reason::closed);
  if (step == nullptr) step = this->step(one.step).get();
  if (step->ended) return refuse(from, one.id, step->refusal, step);
  rendezvous_key key;
  key.source = rank_;
  key.destination = from;
  key.name = one.name;
  key.frame = one.frame;
  key.iteration = one.iteration;
  outgoing& channel = out_of(*step, hashed(key));
  if (one.number >= channel.next) {
    if (closing_) return refuse(from, one.id, reason::closed);
    channel.requests.push_back({from, one.id, one.number});
    parked_[{from, one.id}] = &channel;
    return;
  }
  const auto at = std::lower_bound(
      channel.values.begin(), channel.values.end(), one.number,
      [](const step_state::held& held, std::uint64_t number) { return held.number < number; });
  if (at == channel.values.end() || at->number != one.number) {
    record pushed;
    pushed.kind = record_kind::pushed;
    pushed.id = one.id;
    return say(from, pushed);
  }
  packet_ptr value = std::move(at->value);
  channel.values.erase(at);
  answer(*step, channel, from, one.id, one.number, value);
  drop(std::move(value));
}

template <class Any>
void basic_node<Any>::on_withdraw(int from, const record& one) {
  const auto found = parked_.find({from, one.id});
  if (found == parked_.end()) return;  // it has been answered
  std::erase_if(found->second->requests, [&](const step_state::parked& each) {
    return each.peer == from && each.id == one.id;
  });
  parked_.erase(found);
  refuse(from, one.id, reason::withdrawn);
}

/// To an offer.
template <class Any>
void basic_node<Any>::on_reply(int from, const record& one) {
  const auto found = offers_.find({from, one.id});
  if (found == offers_.end()) return;
  offered what = std::move(found->second);
  offers_.erase(found);
  if (one.kind == record_kind::grant) {
    ++statistics_.granted;
    const std::span<const std::byte> bytes = what.value->bytes();
    transfers_.push_back(
        {from, static_cast<int>(one.size), false, nullptr, bytes.data(), bytes.size(), one.id});
    sending_[{from, one.id}] = std::move(what.value);
    return;
  }
  if (what.channel == nullptr || what.channel->to->drops) return drop(std::move(what.value));
  auto& values = what.channel->values;
  const auto at = std::lower_bound(
      values.begin(), values.end(), what.number,
      [](const step_state::held& held, std::uint64_t number) { return held.number < number; });
  values.insert(at, step_state::held{what.number, std::move(what.value)});
}

template <class Any>
void basic_node<Any>::on_taken(int from, const record& one) {
  peer(from).credit +=
      std::min(one.credit, options_.credit - std::min(options_.credit, peer(from).credit));
  step_state* const step = look_up(one.step);
  if (step == nullptr) return;
  const auto found = step->links.find(from);
  if (found == step->links.end()) return;
  link& there = found->second;
  const std::uint64_t values = std::min(one.size, there.sent - there.received);
  there.received += values;
  if (there.over) return;
  step->unreceived -= values;
  check_drained(*step);
}

// ---- receiving ---------------------------------------------------------------------------------

template <class Any>
void basic_node<Any>::receive(step_state& step, const rendezvous_key& key, receiver& one) {
  const auto refuse_it = [&](errc code) {
    one.fail(std::make_exception_ptr(error(code, text_of(step, key) + ": recv")));
    one.end();
  };
  if (is_open()) {
    if (key.destination != rank_) return refuse_it(errc::not_local);
    if (key.source < 0 || key.source >= size_) return refuse_it(errc::bad_rank);
    const std::uint64_t is = incarnation(key.source);
    if (key.source_incarnation != 0 && is != 0 && key.source_incarnation != is) {
      return refuse_it(errc::stale_incarnation);
    }
  }
  one.incarnation = key.source_incarnation;
  const hashed_key whole = hashed(key);
  const auto result = step.local.receive(whole, one);
  if (!is_open() || key.source == rank_) return;
  if (result.got.origin >= 0) took(step, result.got.origin, result.got.credit);
  if (result.waits == 0) return;
  if (peer(key.source).lost) return forget_lost(step, key.source, lost_error(step, key.source));
  deliver(in_of(step, whole), result.waits);
}

template <class Any>
bool basic_node<Any>::cancel(step_state& step, receiver& one, const std::exception_ptr& why) {
  owned_key key;
  if (!step.local.cancel(one, why, &key)) return false;
  if (is_open() && key.view().source != rank_) balance(in_of(step, hashed(key)));
  return true;
}

/// Brings what has come, in order, to the table.
template <class Any>
void basic_node<Any>::deliver(incoming& channel, std::size_t waits) {
  step_state& step = *channel.step;
  const hashed_key key = channel.key->view();
  while (!closing_ && !step.ended) {
    const auto at = channel.slots.find(channel.next);
    if (at == channel.slots.end()) break;
    step_state::slot& one = at->second;
    if (one.kind == slot_kind::here) {
      packet_ptr value = std::move(one.value);
      channel.slots.erase(at);
      ++channel.next;
      const receipt got = step.local.send(key, std::move(value));
      waits = got.waits;
      if (got.origin >= 0) {
        ++channel.from->taken;
        owe(got.origin, step.id, 1, got.credit);
      }
    } else if (one.kind == slot_kind::offered) {
      waits = unknown;
      if (!grant(channel, one)) break;
      channel.slots.erase(at);
      ++channel.next;
    } else if (one.kind == slot_kind::refused) {
      const std::exception_ptr why = one.why;
      waits = unknown;
      channel.slots.erase(at);
      step.local.fail_waiting(
          [&](const rendezvous_key& each, const receiver&) { return each.finds_same(key.key); },
          why);
      break;
    } else {
      break;
    }
  }
  balance(channel, waits);
}

/// Tells the source where an offered value shall go: to the next receive. False if nobody waits.
template <class Any>
bool basic_node<Any>::grant(incoming& channel, step_state::slot& offer) {
  const hashed_key key = channel.key->view();
  if (free_tags_.empty() && next_tag_ > options_.tags) {
    without_tag_.emplace_back(channel.step->shared_from_this(), &channel);
    return false;
  }
  receiver* found = nullptr;
  std::byte* into = nullptr;
  for (;;) {
    found = channel.step->local.claim(key, offer.type, offer.size);
    if (found == nullptr) return false;
    try {
      into = found->prepare(offer.size);
      break;
    } catch (...) {
      found->fail(std::current_exception());
      found->end();
    }
  }
  asked& request = asked_.at(offer.id);
  request.granted = found;
  request.forget_channel();
  request.dead = offer.dead;
  if (free_tags_.empty()) {
    request.tag = next_tag_++;
  } else {
    request.tag = free_tags_.back();
    free_tags_.pop_back();
  }
  record one;
  one.kind = record_kind::grant;
  one.id = offer.id;
  one.size = static_cast<std::uint64_t>(request.tag);
  transfers_.push_back({request.peer, request.tag, true, into, nullptr, offer.size, offer.id});
  say(request.peer, one);
  return true;
}

template <class Any>
void basic_node<Any>::transferred(const transfer& what, std::error_code failed) {
  if (!what.incoming) {
    const auto sent = sending_.find({what.peer, what.id});
    if (sent == sending_.end()) return;
    drop(std::move(sent->second));
    sending_.erase(sent);
    return;
  }
  const auto found = asked_.find(what.id);
  if (found == asked_.end()) return;
  const asked request = std::move(found->second);
  asked_.erase(found);
  free_tags_.push_back(request.tag);
  receiver& one = *request.granted;
  took(*request.step, what.peer, 0);
  if (failed && peer(what.peer).lost) {
    one.fail(lost_error(*request.step, what.peer));
  } else if (failed) {
    one.fail(std::make_exception_ptr(std::system_error(failed, "rendezvous")));
  } else if (const auto why = request.step->local.ended()) {
    one.fail(why);
  } else {
    one.direct = true;
    one.dead = request.dead;
  }
  one.end();
  for (const auto& [step, channel] : std::exchange(without_tag_, {})) {
    if (!step->ended) deliver(*channel);
  }
}

/// Asks for as many values as receives wait for, and withdraws what nobody waits for.
template <class Any>
void basic_node<Any>::balance(incoming& channel, std::size_t waits) {
  if (channel.step->ended || closing_) return;
  if (waits == unknown) waits = channel.step->local.waiting(channel.key->view());
  const std::uint64_t bound = channel.next + waits;
  for (std::uint64_t n = std::max(channel.needed_until, channel.next); n < bound; ++n) {
    if (!channel.slots.contains(n)) ask(channel, n);
  }
  for (std::uint64_t n = channel.needed_until; n-- > bound;) {
    const auto at = channel.slots.find(n);
    if (at == channel.slots.end() || at->second.kind != slot_kind::asked) continue;
    at->second.kind = slot_kind::withdrawing;
    record one;
    one.kind = record_kind::withdraw;
    one.id = at->second.id;
    say(asked_.at(one.id).peer, one);
  }
  channel.needed_until = bound;
}

template <class Any>
void basic_node<Any>::ask(incoming& channel, std::uint64_t number) {
  const rendezvous_key key = channel.key->view().key;
  record one;
  one.kind = record_kind::request;
  one.step = channel.step->id;
  one.name = key.name;
  one.frame = key.frame;
  one.iteration = key.iteration;
  one.number = number;
  one.incarnation = incarnation(key.source);
  one.id = next_id_++;
  channel.slots[number].id = one.id;
  asked_[one.id] = asked{key.source, channel.step, &channel, number};
  say(key.source, one);
}

template <class Any>
rendezvous_key basic_node<Any>::key_at_destination(int from, const record& one) const noexcept {
  rendezvous_key key;
  key.source = from;
  key.destination = rank_;
  key.name = one.name;
  key.frame = one.frame;
  key.iteration = one.iteration;
  return key;
}

template <class Any>
void basic_node<Any>::on_push(int from, const record& one) {
  const std::uint64_t credit = one.bytes.size() + overhead_of_value;
  step_state* step = look_up(one.step);
  if (step != nullptr && step->ended) return took(*step, from, credit);
  if (cleaned_.contains(one.step)) return owe(from, one.step, 1, credit);
  if (step == nullptr) {
    if (closing_) return owe(from, one.step, 1, credit);
    step = this->step(one.step).get();
  }
  incoming& channel = in_of(*step, hashed(key_at_destination(from, one)));
  if (one.number < channel.next) return;  // it came twice
  step_state::slot& place = channel.slots[one.number];
  if (place.kind == slot_kind::here) {
    if (place.value) return;  // it came twice
  } else if (place.id != 0 && place.kind != slot_kind::coming) {
    // Its request is answered with "pushed" later, which nobody needs then.
    const auto found = asked_.find(place.id);
    if (found != asked_.end()) found->second.forget_channel();
  }
  place.kind = slot_kind::here;
  place.value = packet_ptr(new bytes_packet(one.type, one.dead, one.bytes));
  place.value->origin = from;
  place.value->credit = credit;
  deliver(channel);
}

template <class Any>
std::exception_ptr basic_node<Any>::error_of(int from, const incoming& channel,
                                             const record& refusal) const {
  const std::string text = text_of(*channel.step, channel.key->view().key) + ": ";
  switch (refusal.why) {
    case reason::aborted: {
      std::error_code cause;
      const auto value = static_cast<int>(refusal.cause.code);
      if (refusal.cause.category == cohort_category().name()) {
        cause = std::error_code(value, cohort_category());
      } else if (refusal.cause.category == std::generic_category().name()) {
        cause = std::error_code(value, std::generic_category());
      } else if (refusal.cause.category == std::system_category().name()) {
        cause = std::error_code(value, std::system_category());
      }
      return std::make_exception_ptr(step_aborted_error(
          from, cause,
          text + "rank " + std::to_string(from) + ": " + std::string(refusal.cause.text)));
    }
    case reason::cleaned:
      return std::make_exception_ptr(error(errc::step_cleaned, text + "on the sending rank"));
    case reason::stale:
      return std::make_exception_ptr(error(errc::stale_incarnation, text + "recv"));
    case reason::closed:
    case reason::withdrawn:
      break;
  }
  return std::make_exception_ptr(error(errc::closed, text + "the sending rank has closed"));
}

/// value, offer, pushed, refusal.
template <class Any>
void basic_node<Any>::on_answer(int from, const record& one) {
  const auto found = asked_.find(one.id);
  if (found == asked_.end() || found->second.peer != from || found->second.granted != nullptr) {
    return;
  }
  incoming* const channel = found->second.channel;
  if (one.kind == record_kind::offer && channel != nullptr && one.size <= options_.largest) {
    step_state::slot& place = channel->slots[found->second.number];
    if (place.kind == slot_kind::offered) return;  // it came twice
    place.kind = slot_kind::offered;
    place.type = one.type;
    place.size = one.size;
    place.dead = one.dead;
    return deliver(*channel);
  }
  const asked request = std::move(found->second);
  asked_.erase(found);
  if (one.kind == record_kind::offer) {
    record no;
    no.kind = record_kind::decline;
    no.id = one.id;
    say(from, no);
    if (channel == nullptr) return;
    step_state::slot& place = channel->slots[request.number];
    place.kind = slot_kind::refused;
    place.why = std::make_exception_ptr(
        error(errc::count_too_large, text_of(*channel->step, channel->key->view().key) + ": " +
                                         std::to_string(one.size) + " bytes are offered"));
    return deliver(*channel);
  }
  if (channel == nullptr) {  // the value has nobody to go to
    if (one.kind == record_kind::value) took(*request.step, from, 0);
    return;
  }
  if (one.kind == record_kind::pushed) {
    const auto at = channel->slots.find(request.number);
    if (at != channel->slots.end() && at->second.kind != slot_kind::here) {
      at->second.kind = slot_kind::coming;
    }
    return;
  }
  step_state::slot& place = channel->slots[request.number];
  if (one.kind == record_kind::value) {
    place.kind = slot_kind::here;
    place.value = packet_ptr(new bytes_packet(one.type, one.dead, one.bytes));
    place.value->origin = from;
    return deliver(*channel);
  }
  const bool needed = request.number < channel->needed_until;
  if (one.why != reason::withdrawn && needed) {
    place.kind = slot_kind::refused;
    place.why = error_of(from, *channel, one);
    return deliver(*channel);
  }
  channel->slots.erase(request.number);
  if (needed) ask(*channel, request.number);
}

template <class Any>
void basic_node<Any>::receive(int from, std::span<const std::byte> message) {
  wire::reader in(message);
  while (in.left() != 0 && !peer(from).lost && !broken_) {
    const auto rest = message.last(in.left());
    const record one = get_record(in);
    if (!in.ok()) return refuse_message(from, explain_record(rest));
    switch (one.kind) {
      case record_kind::push:
        on_push(from, one);
        break;
      case record_kind::request:
        on_request(from, one);
        break;
      case record_kind::withdraw:
        on_withdraw(from, one);
        break;
      case record_kind::value:
      case record_kind::offer:
      case record_kind::pushed:
      case record_kind::refusal:
        on_answer(from, one);
        break;
      case record_kind::grant:
      case record_kind::decline:
        on_reply(from, one);
        break;
      case record_kind::taken:
        on_taken(from, one);
        break;
      case record_kind::watch:
        on_watch(from, one);
        break;
      case record_kind::over:
        on_over(from, one);
        break;
      case record_kind::broken:
        on_broken(from, one);
        break;
    }
  }
}

// ---- drained -----------------------------------------------------------------------------------

template <class Any>
void basic_node<Any>::drain(step_state& step, receiver& one) {
  if (const auto why = step.local.ended(); why && !closing_) {
    one.fail(why);
    return one.end();
  }
  for (auto& [other, there] : step.links) {
    if (there.over || there.sent == there.received) continue;
    if (peer(other).lost) {
      one.fail(lost_error(step, other));
      return one.end();
    }
    watch(step, other, there);
  }
  step.drains.push(one);
  step.drain_waits.store(true);  // before the look at the table, which has a lock
  ++draining_;
  check_drained(step);
}

/// Asks to be told if the rank stops to take values of the step before it has all.
template <class Any>
void basic_node<Any>::watch(step_state& step, int to, link& one) {
  if (one.over || one.watched == one.sent) return;
  one.watched = one.sent;
  record said;
  said.kind = record_kind::watch;
  said.step = step.id;
  said.size = one.sent;
  say(to, said);
}

template <class Any>
void basic_node<Any>::on_watch(int from, const record& one) {
  const auto refuse_at_once = [&](reason why) {
    if (silent_) return;
    debt& said = peer(from).owes(one.step);
    said.over = true;
    said.why = why;
    speaks(from);
  };
  if (cleaned_.contains(one.step)) return refuse_at_once(reason::cleaned);
  step_ptr step = find(one.step);
  if (step && step->ended) return refuse_at_once(reason::aborted);
  if (closing_) return refuse_at_once(reason::closed);
  if (!step) step = this->step(one.step);
  link& there = step->links[from];
  there.expected = std::max(there.expected, one.size);
}

/// Tells those who wait for it that this rank takes no more values of the step.
template <class Any>
void basic_node<Any>::say_over(step_state& step, reason why) {
  for (auto& [other, there] : step.links) {
    if (there.expected <= there.taken || peer(other).lost || silent_) continue;
    debt& said = peer(other).owes(step.id);
    said.over = true;
    said.why = why;
    speaks(other);
  }
}

/// Nobody there will ask for values of the step any more. What a rank that has closed has not
/// received is kept, for it is reported.
template <class Any>
void basic_node<Any>::on_over(int from, const record& one) {
  const step_ptr step = find(one.step);
  if (!step || step->ended) return;
  link& there = step->links[from];
  if (one.why != reason::closed && !std::exchange(there.drops, true)) forget_values(*step, from);
  if (std::exchange(there.over, true)) return;
  step->unreceived -= there.sent - there.received;
  check_drained(*step);
}

template <class Any>
void basic_node<Any>::forget_values(step_state& step, int destination) {
  for (auto& [key, channel] : step.out) {
    if (key.view().key.destination != destination) continue;
    for (step_state::held& one : channel.values) drop(std::move(one.value));
    channel.values.clear();
  }
}

template <class Any>
bool basic_node<Any>::stop_draining(step_state& step, receiver& one,
                                    const std::exception_ptr& why) {
  if (!step.drains.contains(one)) return false;
  step.drains.remove(one);
  --draining_;
  one.fail(why);
  one.end();
  return true;
}

template <class Any>
void basic_node<Any>::check_drained(step_state& step) {
  if (step.drains.empty() || step.unreceived != 0 || !step.deferred.empty()) return;
  if (!closing_ && step.local.own_values() != 0) return;
  draining_ -= step.drains.size();
  step.drains.end_all();
}

// ---- the end of a step -------------------------------------------------------------------------

/// Nobody here waits for values of this step any more. What has come counts as received, unless
/// it stays to be reported.
template <class Any>
void basic_node<Any>::forget_incoming(step_state& step, bool keep_values) {
  for (auto& [key, channel] : step.in) {
    const int from = key.view().key.source;
    for (auto at = channel.slots.begin(); at != channel.slots.end();) {
      step_state::slot& one = at->second;
      record say_it;
      say_it.id = one.id;
      const auto request = asked_.find(one.id);
      if (one.kind == slot_kind::here) {
        if (keep_values) {
          ++at;
          continue;
        }
        took(step, from, one.value->credit);
      } else if (one.kind == slot_kind::offered) {
        say_it.kind = record_kind::decline;
        say(from, say_it);
        if (request != asked_.end()) asked_.erase(request);
      } else if (request != asked_.end()) {
        request->second.forget_channel();
        say_it.kind = record_kind::withdraw;
        if (one.kind == slot_kind::asked) say(from, say_it);
      }
      at = channel.slots.erase(at);
    }
    channel.needed_until = channel.next;
  }
  std::erase_if(without_tag_, [&](const auto& each) { return each.first.get() == &step; });
}

template <class Any>
void basic_node<Any>::forget_outgoing(step_state& step, bool keep_values) {
  for (auto& [key, channel] : step.out) {
    for (const step_state::parked& one : channel.requests) {
      parked_.erase({one.peer, one.id});
      refuse(one.peer, one.id, step.ended ? step.refusal : reason::closed, &step);
    }
    channel.requests.clear();
    if (keep_values) continue;
    for (step_state::held& held : channel.values) drop(std::move(held.value));
    channel.values.clear();
  }
  if (keep_values) return;
  for (auto& [ref, one] : offers_) {
    if (one.step.get() == &step) one.channel = nullptr;
  }
}

template <class Any>
void basic_node<Any>::end(step_state& step, const std::exception_ptr& why, bool derived) {
  const std::vector<receipt> receipts = step.local.end(why, derived, false, &dropped_);
  for (const receipt& one : receipts) {
    if (one.origin >= 0) took(step, one.origin, one.credit);
  }
  draining_ -= step.drains.size();
  step.drains.end_all(step.local.ended());
  for (auto& [key, value] : step.deferred) drop(std::move(value));
  step.deferred.clear();
  step.ended = true;
  if (!is_open()) return;
  forget_incoming(step, false);
  forget_outgoing(step, false);
  say_over(step, step.refusal);
  step.unreceived = 0;
  for (auto& [other, there] : step.links) there.received = there.sent;
}

/// As much of it as other ranks are told.
template <class Any>
std::string basic_node<Any>::text_of(const std::exception_ptr& why) {
  std::string text = "an exception of an unknown type";
  try {
    std::rethrow_exception(why);
  } catch (const std::exception& problem) {
    text = problem.what();
  } catch (...) {
  }
  constexpr std::size_t longest = 1024;
  if (text.size() > longest) text.resize(longest);
  return text;
}

template <class Any>
void basic_node<Any>::abort(step_state& step, const std::exception_ptr& why) {
  const bool derived = is_derived(why);
  if (!step.ended || !derived) {
    step.refusal = reason::aborted;
    step.category.clear();
    step.code = 0;
    try {
      std::rethrow_exception(why);
    } catch (const std::system_error& problem) {
      step.category = problem.code().category().name();
      step.code = problem.code().value();
    } catch (...) {
    }
    step.text = text_of(why);
  }
  end(step, why, derived);
}

template <class Any>
bool basic_node<Any>::cleanup(step_id id) {
  cleaned_.insert(id);
  const auto found = steps_.find(id);
  if (found == steps_.end()) return false;
  const step_ptr step = std::move(found->second);
  steps_.erase(found);
  step->refusal = reason::cleaned;
  end(*step,
      std::make_exception_ptr(error(
          errc::step_cleaned, "rank " + std::to_string(rank_) + ", step " + std::to_string(id))),
      true);
  return true;
}

template <class Any>
void basic_node<Any>::close() {
  if (std::exchange(closing_, true)) return;
  const auto why = std::make_exception_ptr(
      error(is_open() ? errc::closed : errc::not_initialised,
            is_open() ? "the rendezvous has closed"
                      : "the rendezvous was closed before it was initialised"));
  for (const auto& [id, step] : steps_) {
    if (!is_open()) {
      end(*step, why, false);
      continue;
    }
    if (step->ended) continue;
    step->local.end(why, true, true);
    forget_incoming(*step, true);
    forget_outgoing(*step, true);
    say_over(*step, reason::closed);
    check_drained(*step);
  }
}

template <class Any>
std::vector<leaked_value> basic_node<Any>::leaks_of(const step_state& step) {
  std::vector<leaked_value> leaks;
  const auto add = [&](const rendezvous_key& key, std::size_t values, std::size_t bytes) {
    if (values == 0) return;
    leaked_value& one = leaks.emplace_back();
    one.step = step.id;
    one.key = owned_key(key);
    one.values = values;
    one.bytes = bytes;
  };
  for (const waiting_key& one : step.local.list()) add(one.key, one.values, one.bytes);
  for (const auto& [key, value] : step.deferred) add(key, 1, value->bytes().size());
  for (const auto& [key, channel] : step.out) {
    std::size_t bytes = 0;
    for (const step_state::held& one : channel.values) bytes += one.value->bytes().size();
    add(key.view().key, channel.values.size(), bytes);
  }
  for (const auto& [key, channel] : step.in) {
    std::size_t values = 0;
    std::size_t bytes = 0;
    for (const auto& [number, one] : channel.slots) {
      if (one.kind != slot_kind::here) continue;
      ++values;
      bytes += one.value->bytes().size();
    }
    add(key.view().key, values, bytes);
  }
  return leaks;
}

template <class Any>
std::vector<leaked_value> basic_node<Any>::finish() {
  std::vector<leaked_value> leaks;
  const auto why = std::make_exception_ptr(
      error(errc::closed, "all ranks have closed, and some values have not been received"));
  for (const auto& [id, step] : steps_) {
    const auto some = leaks_of(*step);
    leaks.insert(leaks.end(), some.begin(), some.end());
    draining_ -= step->drains.size();
    step->drains.end_all(why);
  }
  return leaks;
}

// ---- failures ----------------------------------------------------------------------------------

template <class Any>
std::exception_ptr basic_node<Any>::lost_error(const step_state& step, int lost) const {
  std::string text = "rank " + std::to_string(rank_) + ", step " + std::to_string(step.id);
  text += ": rank " + std::to_string(lost) + " is lost";
  if (const std::string& why = why_lost(lost); !why.empty()) text += ": " + why;
  return std::make_exception_ptr(peer_lost_error({lost}, text));
}

/// The last that a rank hears.
template <class Any>
void basic_node<Any>::say_broken(int to, const std::string& why) {
  std::vector<std::byte> on_their_way;
  wire::writer ids(on_their_way);
  for (const auto& [ref, value] : sending_) {
    if (ref.first == to) ids.put(ref.second);
  }
  record one;
  one.kind = record_kind::broken;
  one.cause.text = why;
  one.bytes = on_their_way;
  wire::writer out(peer(to).out);
  put(out, one);
  speaks(to);
}

template <class Any>
void basic_node<Any>::refuse_message(int from, const std::string& why) {
  if (is_lost(from) || broken_) return;
  lose(from, "it has sent bytes that are no message: " + why);
  say_broken(from,
             "it has got bytes from rank " + std::to_string(from) + " that are no message: " + why);
}

template <class Any>
void basic_node<Any>::on_broken(int from, const record& one) {
  const std::vector<std::uint64_t> coming = identifiers_of(one);
  for (const auto& [id, request] : asked_) {
    if (request.peer != from || request.granted == nullptr) continue;
    if (std::find(coming.begin(), coming.end(), id) == coming.end()) {
      given_up_.emplace_back(from, id);
    }
  }
  lose(from, std::string(one.cause.text));
}

template <class Any>
void basic_node<Any>::forget_lost(step_state& step, int lost, const std::exception_ptr& why) {
  step.local.fail_waiting(
      [&](const rendezvous_key& key, const receiver&) { return key.source == lost; }, why);
}

template <class Any>
void basic_node<Any>::lose(int lost, std::string why_) {
  peer_state& gone = peer(lost);
  if (std::exchange(gone.lost, true)) return;
  gone.why_lost = std::move(why_);
  gone.out.clear();
  gone.owed.clear();
  for (auto at = asked_.begin(); at != asked_.end();) {
    // A transfer that was granted ends by what drives it.
    at = at->second.peer == lost && at->second.granted == nullptr ? asked_.erase(at) : ++at;
  }
  std::erase_if(parked_, [&](const auto& each) { return each.first.first == lost; });
  for (auto at = offers_.begin(); at != offers_.end();) {
    if (at->first.first != lost) {
      ++at;
      continue;
    }
    drop(std::move(at->second.value));
    at = offers_.erase(at);
  }
  for (const auto& [id, step] : steps_) {
    for (auto& [key, channel] : step->in) {
      if (key.view().key.source != lost) continue;
      std::erase_if(channel.slots,
                    [](const auto& each) { return each.second.kind != slot_kind::here; });
      channel.needed_until = channel.next;
    }
    const std::exception_ptr why = lost_error(*step, lost);
    for (auto& [key, channel] : step->out) {
      if (key.view().key.destination == lost) channel.requests.clear();
    }
    forget_values(*step, lost);
    if (const auto there = step->links.find(lost); there != step->links.end()) {
      if (!there->second.over && there->second.sent != there->second.received) {
        draining_ -= step->drains.size();
        step->drains.end_all(why);
      }
    }
    forget_lost(*step, lost, why);
  }
}

template <class Any>
void basic_node<Any>::break_down(const std::exception_ptr& why) {
  if (broken_) return;
  broken_ = why;
  closing_ = true;
  for (const auto& [id, step] : steps_) {
    step->local.end(why, false, false, &dropped_);
    draining_ -= step->drains.size();
    step->drains.end_all(why);
    step->ended = true;
  }
  for (auto at = asked_.begin(); at != asked_.end();) {
    at = at->second.granted == nullptr ? asked_.erase(at) : ++at;
  }
  parked_.clear();
  for (auto& [ref, one] : offers_) drop(std::move(one.value));
  offers_.clear();
  // What has been said stands: transfers may have begun by it.
  const std::string text = text_of(why);
  for (int to = 0; to < size_ && !silent_; ++to) {
    if (to == rank_ || is_lost(to)) continue;
    peer(to).owed.clear();
    say_broken(to, text);
  }
  silent_ = true;
}

}  // namespace cohort::meeting
