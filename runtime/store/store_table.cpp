#include "lockstep/runtime/store/store_table.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include "lockstep/runtime/base/internal/text_excerpt.h"

namespace lockstep {
namespace {

// The memory of an entry besides its key and value.
constexpr size_t kEntryBytes = 64;
// A reply has room for any value.
constexpr size_t kMaxValueBytes = kMaxStoreMessageBytes / 2;

StoreReply refused(uint64_t id, std::string why) {
  return {.id = id, .status = StoreStatus::kRefused, .values = {std::move(why)}};
}

/// Returns whether the request has as many keys and values as its kind needs.
bool is_well_formed(const StoreRequest& request) {
  const size_t num_keys = request.keys.size();
  const size_t num_values = request.values.size();
  switch (request.op) {
    case StoreOp::kSet:
      return num_keys == num_values;
    case StoreOp::kAppend:
      return num_keys == 1 && num_values == 1;
    case StoreOp::kCompareSet:
      return num_keys == 1 && num_values == 2;
    case StoreOp::kAdd:
    case StoreOp::kErase:
      return num_keys == 1 && num_values == 0;
    case StoreOp::kGet:
    case StoreOp::kCheck:
    case StoreOp::kCount:
    case StoreOp::kCancel:
      return num_values == 0;
  }
  return false;
}

std::optional<int64_t> number_of(const std::string& text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

void StoreTable::handle(uint64_t client, StoreRequest request) {
  if (!is_well_formed(request))
    return answer_(client, refused(request.id, "expected another number of keys and values"));
  if (request.op == StoreOp::kGet) return get(client, std::move(request));
  if (request.op != StoreOp::kCancel) return answer_(client, apply(client, request));
  const auto wait = std::find_if(waits_.begin(), waits_.end(), [&](const Wait& each) {
    return each.client == client && each.request.id == static_cast<uint64_t>(request.number);
  });
  if (wait != waits_.end()) end(wait);
}

StoreReply StoreTable::apply(uint64_t client, const StoreRequest& request) {
  StoreReply reply{.id = request.id};
  const auto full = [&] {
    return refused(request.id, "expected at most " + std::to_string(limits_.client_bytes) +
                                   " bytes from one client, and " + std::to_string(kMaxValueBytes) +
                                   " in one value, but got more");
  };
  const auto found = request.keys.empty() ? entries_.end() : entries_.find(request.keys.front());
  const std::string* value = found == entries_.end() ? nullptr : &found->second.value;
  switch (request.op) {
    case StoreOp::kSet:
      for (size_t i = 0; i < request.keys.size(); ++i) {
        if (!has_room(client, request.keys[i], request.values[i].size())) return full();
        put(client, request.keys[i], request.values[i]);
      }
      break;
    case StoreOp::kCheck:
      reply.number = std::all_of(request.keys.begin(), request.keys.end(),
                                 [this](const std::string& key) { return entries_.contains(key); });
      break;
    case StoreOp::kAdd: {
      const auto old = value == nullptr ? int64_t{0} : number_of(*value);
      if (!old || __builtin_add_overflow(*old, request.number, &reply.number))
        return refused(request.id, "expected a number at " + quoted_excerpt(request.keys.front()));
      const auto sum = std::to_string(reply.number);
      if (!has_room(client, request.keys.front(), sum.size())) return full();
      // Asking for a number does not make one.
      if (value != nullptr || request.number != 0) put(client, request.keys.front(), sum);
      break;
    }
    case StoreOp::kAppend: {
      const size_t old_size = value == nullptr ? 0 : value->size();
      if (!has_room(client, request.keys.front(), old_size + request.values.front().size())) return full();
      put(client, request.keys.front(), (value == nullptr ? "" : *value) + request.values.front());
      break;
    }
    case StoreOp::kCompareSet: {
      const auto& expected = request.values[0];
      const bool is_set = value == nullptr ? expected.empty() : *value == expected;
      reply.values = {is_set ? request.values[1] : value == nullptr ? expected : *value};
      if (!is_set) break;
      if (!has_room(client, request.keys.front(), request.values[1].size())) return full();
      put(client, request.keys.front(), request.values[1]);
      break;
    }
    case StoreOp::kErase:
      if (value == nullptr) break;
      clients_[found->second.owner].num_bytes -= found->first.size() + value->size() + kEntryBytes;
      entries_.erase(found);
      reply.number = 1;
      break;
    case StoreOp::kCount:
      reply.number = static_cast<int64_t>(entries_.size());
      break;
    case StoreOp::kGet:
    case StoreOp::kCancel:
      break;  // handle() does these
  }
  return reply;
}

bool StoreTable::has_room(uint64_t client, const std::string& key, size_t value_bytes) const {
  const auto found = clients_.find(client);
  uint64_t num_bytes = found == clients_.end() ? 0 : found->second.num_bytes;
  const auto entry = entries_.find(key);
  if (entry != entries_.end() && entry->second.owner == client)
    num_bytes -= key.size() + entry->second.value.size() + kEntryBytes;
  return value_bytes <= kMaxValueBytes &&
         num_bytes + key.size() + value_bytes + kEntryBytes <= limits_.client_bytes;
}

void StoreTable::put(uint64_t client, const std::string& key, std::string value) {
  const auto [entry, is_new] = entries_.try_emplace(key);
  if (!is_new)
    clients_[entry->second.owner].num_bytes -= key.size() + entry->second.value.size() + kEntryBytes;
  clients_[client].num_bytes += key.size() + value.size() + kEntryBytes;
  entry->second = {.value = std::move(value), .owner = client};
  if (is_new) wake(key);
}

bool StoreTable::is_ended(const StoreRequest& request) const {
  return std::any_of(request.unless.begin(), request.unless.end(),
                     [this](const std::string& key) { return entries_.contains(key); });
}

void StoreTable::get(uint64_t client, StoreRequest request) {
  const auto num_missing = std::count_if(request.keys.begin(), request.keys.end(),
                                         [this](const std::string& key) { return !entries_.contains(key); });
  // Keys that exist are returned, even if the wait would end by now.
  if (num_missing == 0 || is_ended(request)) return answer_get(client, request);
  Client& waiting = clients_[client];
  if (waiting.num_waits + request.keys.size() + request.unless.size() > limits_.client_waits)
    return answer_(client, refused(request.id, "expected at most " + std::to_string(limits_.client_waits) +
                                                   " keys that one client waits for, but got more"));
  listen(waits_.insert(waits_.end(), {client, std::move(request), static_cast<size_t>(num_missing)}));
}

void StoreTable::answer_get(uint64_t client, const StoreRequest& request) {
  StoreReply reply{.id = request.id};
  size_t num_bytes = 0;
  for (const auto& key : request.keys) {
    const auto found = entries_.find(key);
    if (found == entries_.end()) return answer_(client, {.id = request.id, .status = StoreStatus::kEnded});
    num_bytes += found->second.value.size() + sizeof(uint32_t);
    if (num_bytes > kMaxValueBytes + kMaxStoreMessageBytes / 4)
      return answer_(client, refused(request.id, "expected values for one reply, but got more"));
    reply.values.push_back(found->second.value);
  }
  answer_(client, reply);
}

/// Lets the keys that the wait misses end it.
void StoreTable::listen(Waits::iterator wait) {
  const auto& request = wait->request;
  for (const auto& key : request.keys)
    if (!entries_.contains(key)) waiting_.emplace(key, wait);
  for (const auto& key : request.unless) waiting_.emplace(key, wait);
  clients_[wait->client].num_waits += request.keys.size() + request.unless.size();
}

void StoreTable::end(Waits::iterator wait) {
  const auto& request = wait->request;
  const auto forget_key = [&](const std::string& key) {
    const auto [begin, end] = waiting_.equal_range(key);
    const auto found = std::find_if(begin, end, [&](const auto& each) { return each.second == wait; });
    if (found != end) waiting_.erase(found);
  };
  for (const auto& key : request.keys) forget_key(key);
  for (const auto& key : request.unless) forget_key(key);
  clients_[wait->client].num_waits -= request.keys.size() + request.unless.size();
  waits_.erase(wait);
}

/// Answers the waits that a new key ends. A wait counts its missing keys, so that a job whose workers all
/// wait for all others takes a step for each pair, and not for each pair and key.
void StoreTable::wake(const std::string& key) {
  const auto [begin, last] = waiting_.equal_range(key);
  std::vector<Waits::iterator> woken;
  for (auto each = begin; each != last; ++each) woken.push_back(each->second);
  waiting_.erase(begin, last);
  std::vector<Waits::iterator> ended;
  for (const auto& wait : woken) {
    const auto& unless = wait->request.unless;
    const bool is_end = std::find(unless.begin(), unless.end(), key) != unless.end();
    const bool is_over = is_end || --wait->num_missing == 0;
    if (is_over && !std::exchange(wait->is_over, true)) ended.push_back(wait);
  }
  for (const auto& wait : ended) {
    const auto& keys = wait->request.keys;
    const bool are_there = std::all_of(keys.begin(), keys.end(),
                                       [this](const std::string& each) { return entries_.contains(each); });
    const uint64_t client = wait->client;
    StoreRequest request = wait->request;
    end(wait);
    // A key may have been erased meanwhile; then the wait begins anew.
    if (are_there || is_ended(request)) {
      answer_get(client, request);
    } else {
      get(client, std::move(request));
    }
  }
}

void StoreTable::forget(uint64_t client) {
  for (auto wait = waits_.begin(); wait != waits_.end();) {
    const auto next = std::next(wait);
    if (wait->client == client) end(wait);
    wait = next;
  }
}

}  // namespace lockstep
