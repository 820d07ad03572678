//! The API groups of OpenShift's kinds that once had none: in old templates all of them have the version `v1`.

const GROUPS: [(&str, &[&str]); 12] = [
    (
        "apps.openshift.io",
        &["DeploymentConfig", "DeploymentConfigRollback", "DeploymentLog", "DeploymentRequest"],
    ),
    (
        "authorization.openshift.io",
        &[
            "ClusterRole",
            "ClusterRoleBinding",
            "LocalResourceAccessReview",
            "LocalSubjectAccessReview",
            "ResourceAccessReview",
            "Role",
            "RoleBinding",
            "RoleBindingRestriction",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
            "SubjectRulesReview",
        ],
    ),
    (
        "build.openshift.io",
        &["BinaryBuildRequestOptions", "Build", "BuildConfig", "BuildLog", "BuildRequest"],
    ),
    (
        "image.openshift.io",
        &[
            "Image",
            "ImageSignature",
            "ImageStream",
            "ImageStreamImage",
            "ImageStreamImport",
            "ImageStreamMapping",
            "ImageStreamTag",
        ],
    ),
    (
        "network.openshift.io",
        &["ClusterNetwork", "EgressNetworkPolicy", "HostSubnet", "NetNamespace"],
    ),
    (
        "oauth.openshift.io",
        &["OAuthAccessToken", "OAuthAuthorizeToken", "OAuthClient", "OAuthClientAuthorization"],
    ),
    ("project.openshift.io", &["Project", "ProjectRequest"]),
    ("quota.openshift.io", &["ClusterResourceQuota"]),
    ("route.openshift.io", &["Route"]),
    (
        "security.openshift.io",
        &[
            "PodSecurityPolicyReview",
            "PodSecurityPolicySelfSubjectReview",
            "PodSecurityPolicySubjectReview",
            "SecurityContextConstraints",
        ],
    ),
    ("template.openshift.io", &["Template"]),
    ("user.openshift.io", &["Group", "Identity", "User", "UserIdentityMapping"]),
];

/// The present `apiVersion` of a kind that has `v1` in old templates; `None` for kinds of Kubernetes' core.
pub(crate) fn current(kind: &str) -> Option<String> {
    let group = GROUPS.iter().find(|(_, kinds)| kinds.contains(&kind));
    group.map(|(group, _)| format!("{group}/v1"))
}
