#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <string>

namespace lockstep {

/// A client of the store at `host` and `options.port`, and with `options.isServer` the store as well. Blocks
/// until it is connected; throws as c10d::TCPStore. Where the host has one address alone, neither this client
/// nor its clones ask a name server for the name of that address, for which a silent one would keep each of
/// them for longer than the timeout allows.
c10::intrusive_ptr<c10d::Store> connect_to_coordinator(const std::string& host,
                                                       const c10d::TCPStoreOptions& options);

}  // namespace lockstep
