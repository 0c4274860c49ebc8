#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <string>

namespace lockstep {

/// Connects a client to the store at `host` and `options.port`; with `options.isServer` also starts the
/// store. Blocks until connected; throws like c10d::TCPStore. If the host has only one address, neither the
/// client nor its clones ask a name server for that address's name, since one that does not answer would
/// delay each of them beyond the timeout.
c10::intrusive_ptr<c10d::Store> connect_to_coordinator(const std::string& host,
                                                       const c10d::TCPStoreOptions& options);

}  // namespace lockstep
