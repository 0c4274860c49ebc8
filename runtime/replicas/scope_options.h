#pragma once

namespace lockstep {

/// Options of Strategy::scope().
///
/// Example:
///
///     auto model = strategy.scope([](ReplicaContext&) { return MyNet(); }, {.channels_last = true});
struct ScopeOptions {
  /// Stores the module's 4-dimensional parameters and buffers in channels_last memory format, in which tensor
  /// cores compute convolutions without converting them. Values and shapes stay the same. Convolutions then
  /// return channels_last results; also convert the input, by
  /// `.contiguous(torch::MemoryFormat::ChannelsLast)`.
  bool channels_last = false;
};

}  // namespace lockstep
