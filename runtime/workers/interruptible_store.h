#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// A client of another store whose waits can be interrupted, so that ranks that wait for the keys of a failed
/// rank do not wait until the timeout.
class InterruptibleStore : public c10d::Store {
 public:
  /// wait(), get() and check() throw CollectiveAborted if `is_interrupted()` returns true and the keys are
  /// missing. Waits look for an interruption every 20 ms, also through another such store on top of this one.
  InterruptibleStore(c10::intrusive_ptr<c10d::Store> store, std::function<bool()> is_interrupted,
                     std::chrono::milliseconds timeout)
      : Store(timeout), store_(std::move(store)), is_interrupted_(std::move(is_interrupted)) {}

  c10::intrusive_ptr<c10d::Store> clone() override;
  void set(const std::string& key, const std::vector<uint8_t>& value) override { store_->set(key, value); }
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& current,
                                  const std::vector<uint8_t>& desired) override {
    return store_->compareSet(key, current, desired);
  }
  std::vector<uint8_t> get(const std::string& key) override;
  int64_t add(const std::string& key, int64_t value) override { return store_->add(key, value); }
  bool deleteKey(const std::string& key) override { return store_->deleteKey(key); }
  bool check(const std::vector<std::string>& keys) override;
  int64_t getNumKeys() override { return store_->getNumKeys(); }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

 private:
  c10::intrusive_ptr<c10d::Store> store_;
  std::function<bool()> is_interrupted_;
};

}  // namespace lockstep
