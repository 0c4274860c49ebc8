#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/runtime/store/store_client.h"

namespace lockstep {

/// The job's store as LibTorch's backends use one. Copies made by clone() share the connection, which serves
/// many threads at once.
///
/// Waits for keys that are missing throw c10::DistStoreError after the timeout, and CollectiveAborted once
/// StoreClient::interrupt() is called or a key of `unless` exists. All calls throw c10::DistNetworkError if
/// the connection is lost or closed, and what StoreClient throws for requests that are too large.
class JobStore : public c10d::Store {
 public:
  JobStore(std::shared_ptr<StoreClient> client, std::vector<std::string> unless,
           std::chrono::milliseconds timeout)
      : Store(timeout), client_(std::move(client)), unless_(std::move(unless)) {}

  c10::intrusive_ptr<c10d::Store> clone() override {
    return c10::make_intrusive<JobStore>(client_, unless_, getTimeout());
  }
  void set(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override;
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override;
  bool deleteKey(const std::string& key) override;
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override;
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;
  void append(const std::string& key, const std::vector<uint8_t>& value) override;
  std::vector<std::vector<uint8_t>> multiGet(const std::vector<std::string>& keys) override;
  void multiSet(const std::vector<std::string>& keys,
                const std::vector<std::vector<uint8_t>>& values) override;
  bool hasExtendedApi() const override { return true; }

 private:
  StoreCallOptions options(std::chrono::milliseconds timeout) const;
  std::vector<std::string> read(const std::vector<std::string>& keys, std::chrono::milliseconds timeout);

  const std::shared_ptr<StoreClient> client_;
  const std::vector<std::string> unless_;
};

}  // namespace lockstep
