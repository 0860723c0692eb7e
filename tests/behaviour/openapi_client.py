"""Uses a client that was generated from the OpenAPI document, as somebody's tool would: lists,
creates, changes and removes, and reads what it is refused.

usage: openapi_client.py DIRECTORY-OF-THE-CLIENT URL ADMIN-TOKEN VIEWER-TOKEN
"""

import sys

directory, url, admin_token, viewer_token = sys.argv[1:]
sys.path.insert(0, directory)

from client import AuthenticatedClient
from client.api.classes import list_classes, set_class
from client.api.disks import create_disk, list_disks, remove_disk, set_disk, show_disk
from client.models import (
    ClassPut,
    CreatedDisk,
    DiskCreate,
    DiskPatch,
    DryRun,
    ErrorBody,
    ImageFate,
    PolicyPart,
)

admin = AuthenticatedClient(base_url=url, token=admin_token)
viewer = AuthenticatedClient(base_url=url, token=viewer_token)


def names(client):
    return [disk.name for disk in list_disks.sync(client=client)]


assert names(admin) == [], names(admin)

# A class, and a disk of it: tried first, then made.
gold = ClassPut(policy=PolicyPart(reservation=200, shares=500))
assert set_class.sync_detailed("gold", client=admin, body=gold).status_code == 200
assert [one.name for one in list_classes.sync(client=viewer)] == ["gold"]
wanted = DiskCreate(name="db0", size=8 << 20, class_="gold")
tried = create_disk.sync(client=admin, body=wanted, dry_run=True)
assert isinstance(tried, DryRun), tried
assert names(admin) == [], "a dry run made a disk"
made = create_disk.sync(client=admin, body=wanted)
assert isinstance(made, CreatedDisk) and made.policy.reservation == 200, made
assert names(viewer) == ["db0"]

# What is refused says why, and what to do.
again = create_disk.sync_detailed(client=admin, body=wanted)
assert again.status_code == 409 and "exists" in again.parsed.error, again
assert isinstance(again.parsed, ErrorBody), again
refused = set_disk.sync_detailed("db0", client=viewer, body=DiskPatch(shares=700))
assert refused.status_code == 403 and "role admin" in str(refused.parsed.to_dict()), refused
stranger = AuthenticatedClient(base_url=url, token="x" * 40)
assert list_disks.sync_detailed(client=stranger).status_code == 401

# Two tools that have read the same disk: the second to change it is told.
read = show_disk.sync_detailed("db0", client=admin)
tag = read.headers["etag"]
changed = set_disk.sync_detailed("db0", client=admin, body=DiskPatch(shares=700), if_match=tag)
assert changed.status_code == 200, changed
late = set_disk.sync_detailed("db0", client=admin, body=DiskPatch(limit=900), if_match=tag)
assert late.status_code == 412 and "shares" in late.parsed.error, late
now = show_disk.sync("db0", client=viewer)
assert (now.policy.shares, now.policy.limit, now.policy.reservation) == (700, None, 200), now

gone = remove_disk.sync_detailed("db0", client=admin, image=ImageFate.PURGE)
assert gone.status_code == 204, gone
assert names(admin) == []
print("a generated client lists, creates, changes, is refused and told")
