#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "lockstep/runtime/store/store_message.h"

namespace lockstep {

/// The keys and values of a store, and the requests that wait for keys. Not thread-safe.
///
/// kCompareSet sets a missing key if the first value, the expected one, is empty, and another key if it has
/// the expected value. It returns the key's value afterwards, or the expected one if the key is missing. That
/// is what c10d::TCPStore does, which LibTorch's backends are written for.
class StoreTable {
 public:
  struct Limits {
    uint64_t client_bytes = uint64_t{64} << 20;  ///< keys and values that one client has set
    size_t client_waits = size_t{1} << 18;       ///< keys that one client waits for
  };
  /// Receives the reply to a request of a client.
  using Answer = std::function<void(uint64_t client, const StoreReply& reply)>;

  StoreTable(const Limits& limits, Answer answer) : limits_(limits), answer_(std::move(answer)) {}

  /// Answers the request, at once or, for kGet, later. The answer may come before this returns. `client` is a
  /// number that the caller chooses for each connection.
  void handle(uint64_t client, StoreRequest request);
  /// Forgets what a client waits for, but not what it has set.
  void forget(uint64_t client);

  size_t num_keys() const { return entries_.size(); }

 private:
  struct Entry {
    std::string value;
    uint64_t owner = 0;  // the client that is charged for it
  };
  /// A kGet that has not been answered.
  struct Wait {
    uint64_t client;
    StoreRequest request;
    size_t num_missing;
    bool is_over = false;
  };
  using Waits = std::list<Wait>;
  struct Client {
    uint64_t num_bytes = 0;  // that it has set
    size_t num_waits = 0;    // keys that it waits for
  };

  StoreReply apply(uint64_t client, const StoreRequest& request);
  void get(uint64_t client, StoreRequest request);
  void put(uint64_t client, const std::string& key, std::string value);
  bool has_room(uint64_t client, const std::string& key, size_t value_bytes) const;
  void wake(const std::string& key);
  bool is_ended(const StoreRequest& request) const;
  void answer_get(uint64_t client, const StoreRequest& request);
  void listen(Waits::iterator wait);
  void end(Waits::iterator wait);

  const Limits limits_;
  const Answer answer_;
  std::unordered_map<std::string, Entry> entries_;
  Waits waits_;
  // The waits that a missing key may end.
  std::unordered_multimap<std::string, Waits::iterator> waiting_;
  std::map<uint64_t, Client> clients_;
};

}  // namespace lockstep
