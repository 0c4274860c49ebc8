#include "lockstep/runtime/workers/coordinator_store.h"

#include <optional>

#include "lockstep/runtime/base/net/address_lookup.h"
#include "lockstep/runtime/base/net/name_server_guard.h"

namespace lockstep {
namespace {

class CoordinatorStore : public c10d::TCPStore {
 public:
  /// Only for connect().
  CoordinatorStore(const std::string& host, bool is_address, const c10d::TCPStoreOptions& options)
      : TCPStore(host, options), is_address_(is_address) {}

  static c10::intrusive_ptr<c10d::Store> connect(const std::string& host, bool is_address,
                                                 const c10d::TCPStoreOptions& options) {
    // Resolving a name may need the real name server.
    std::optional<NameServerGuard> without_name_server;
    if (is_address) without_name_server.emplace();
    return c10::make_intrusive<CoordinatorStore>(host, is_address, options);
  }

  c10::intrusive_ptr<c10d::Store> clone() override {
    c10d::TCPStoreOptions options;
    options.port = getPort();
    options.waitWorkers = false;
    options.timeout = getTimeout();
    return connect(getHost(), is_address_, options);
  }

 private:
  const bool is_address_;
};

}  // namespace

c10::intrusive_ptr<c10d::Store> connect_to_coordinator(const std::string& host,
                                                       const c10d::TCPStoreOptions& options) {
  const auto address = single_address_of(host, options.port);
  return CoordinatorStore::connect(address.value_or(host), address.has_value(), options);
}

}  // namespace lockstep
